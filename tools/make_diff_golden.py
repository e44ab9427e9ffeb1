#!/usr/bin/env python3
"""Prints what tests/test_diff.c holds against lam_diff: singular values and rests of NumPy's SVD, and what Philox4x32-10 keeps.

    python3 tools/make_diff_golden.py
"""
import hashlib

import numpy as np

M=(1<<64)-1
def sm(seed,n):
    s=seed; out=[]
    for _ in range(n):
        s=(s+0x9e3779b97f4a7c15)&M; z=s
        z=((z^(z>>30))*0xbf58476d1ce4e5b9)&M; z=((z^(z>>27))*0x94d049bb133111eb)&M; z^=z>>31
        out.append(np.float32((z>>11)*2.0**-52-1.0))
    return np.array(out,'f4')
def case(rows,cols,rank,kind):
    x=sm(rows*1000+cols,rows*cols).reshape(rows,cols)
    if kind=='decay': x=(x*(np.float32(0.5)**np.arange(cols,dtype='f4'))).astype('f4')
    s=np.linalg.svd(x.astype('f8'),compute_uv=False)
    print(f'{{{rows}, {cols}, {rank}, {"true" if kind=="decay" else "false"}, {np.sqrt((s[rank:]**2).sum()):.12g}, {{{s[0]:.12g}, {s[rank-1]:.12g}}}}},')
case(40,60,5,'flat');case(60,40,5,'flat');case(300,200,16,'flat');case(80,24,6,'decay');case(7,5,5,'flat');case(5,70,3,'flat')
def philox(c,k):
    c=list(c);k=list(k)
    for _ in range(10):
        p0=0xD2511F53*c[0];p1=0xCD9E8D57*c[2]
        c=[(p1>>32)^c[1]^k[0],p1&0xffffffff,(p0>>32)^c[3]^k[1],p0&0xffffffff]
        k=[(k[0]+0x9E3779B9)&0xffffffff,(k[1]+0xBB67AE85)&0xffffffff]
    return c
assert philox([0]*4,[0]*2)==[0x6627e8d5,0xe169c58d,0xbc57ac4c,0x9b00dbd8]
def mask(name,seed,P,n):
    key=int.from_bytes(hashlib.sha256(name.encode()).digest()[:8],'little'); t=int(P*2**32); m=0
    for e in range(n):
        o=philox([e//4&0xffffffff,e//4>>32,key&0xffffffff,key>>32],[seed&0xffffffff,seed>>32])
        m|=(o[e%4]>=t)<<e
    return m
for nm in ('blk.0.attn_output','token_embd'): print(nm,hex(mask(nm,7,0.5,64)),hex(mask(nm,2**32+7,0.9,64)))
