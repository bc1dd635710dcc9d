# The BMC of a machine like VirtualBMC's: pyghmi speaks IPMI, and the lab's chassis program acts.
import json
import subprocess
import sys

import pyghmi.ipmi.bmc as bmc

with open(sys.argv[1]) as file:
    conf = json.load(file)

# What IPMI and the lab call a boot device (virtualbmc/vbmc.py has the same three).
SET = {'network': 'pxe', 'hd': 'default', 'optical': 'cdrom'}
GET = {'pxe': 0x04, 'default': 0x08, 'cdrom': 0x14}


def chassis(*args):
    done = subprocess.run([conf['chassis'], '0x20', *args], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip().partition(':')[2]


class Machine(bmc.Bmc):
    def get_power_state(self):
        return int(chassis('get', 'power'))

    def power_on(self):
        chassis('set', 'power', '1')

    def power_off(self):
        chassis('set', 'power', '0')

    def power_reset(self):
        chassis('set', 'reset', '1')

    def power_shutdown(self):
        chassis('set', 'shutdown', '1')

    def get_boot_device(self):
        return GET.get(chassis('get', 'boot'), 0)

    def set_boot_device(self, device):
        if device in SET:
            chassis('set', 'boot', SET[device])


Machine({conf['user']: conf['password']}, port=conf['port'], address=conf['address']).listen()
