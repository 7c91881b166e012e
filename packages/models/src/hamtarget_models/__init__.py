"""Hold the networks that `hamtarget` learns with: `resnet50_conv4.safetensors` and the folder `sift-64`.

There is no code here. `hamtarget.learn` finds these files, and checks them before it uses them.
"""

__version__ = "1.0.0"
