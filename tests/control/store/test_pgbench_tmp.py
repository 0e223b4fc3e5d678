import sys, subprocess
def test_b(postgresql):
    postgresql.run("CREATE DATABASE bench")
    print(subprocess.run([sys.executable,"benchmarks/store_writes.py","--runs","1","--url",postgresql.url("bench")],capture_output=True,text=True))
    subprocess.run([sys.executable,"/tmp/st_smoke.py",postgresql.url("bench")])
