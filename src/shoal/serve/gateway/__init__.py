"""(sign)"""
