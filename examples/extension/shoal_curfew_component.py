"""The declaration of the example: every command reads it, so it imports nothing of what it names."""

from shoal.extension import Component

CURFEW = Component(extension="shoal_curfew:Curfew", commands={"curfew": "shoal_curfew"})
