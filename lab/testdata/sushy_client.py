"""Drives a lab BMC with sushy, the Redfish client of OpenStack Ironic.

Usage: sushy_client.py STAGE ADDRESS USER PASSWORD SYSTEM [IMAGE]
"""
import sys

import sushy

stage, address, user, password, system_id = sys.argv[1:6]
root = sushy.Sushy(address, username=user, password=password)
assert len(root.get_system_collection().get_members()) == 1
system = root.get_system(system_id)
manager = system.managers[0]
drive = [m for m in manager.virtual_media.get_members() if sushy.VIRTUAL_MEDIA_CD in m.media_types][0]


def fresh():
    system.invalidate()
    system.refresh(force=True)
    drive.invalidate()
    drive.refresh(force=True)
    return system


if stage == "boot-cd":
    assert system.power_state == sushy.SYSTEM_POWER_STATE_OFF, system.power_state
    assert sushy.BOOT_SOURCE_TARGET_UEFI_HTTP in system.get_allowed_system_boot_source_values()
    drive.insert_media(sys.argv[6], inserted=True, write_protected=True)
    fresh()
    assert drive.inserted and drive.image == sys.argv[6], drive.image
    system.set_system_boot_options(target=sushy.BOOT_SOURCE_TARGET_CD, enabled=sushy.BOOT_SOURCE_ENABLED_ONCE)
    fresh()
    assert system.boot.target == sushy.BOOT_SOURCE_TARGET_CD, system.boot.target
    assert system.boot.enabled == sushy.BOOT_SOURCE_ENABLED_ONCE, system.boot.enabled
    system.reset_system(sushy.RESET_ON)
    fresh()
    assert system.power_state == sushy.SYSTEM_POWER_STATE_ON, system.power_state
    assert system.boot.enabled == sushy.BOOT_SOURCE_ENABLED_DISABLED, system.boot.enabled
elif stage == "back-to-disk":
    system.reset_system(sushy.RESET_FORCE_OFF)
    fresh()
    assert system.power_state == sushy.SYSTEM_POWER_STATE_OFF, system.power_state
    drive.eject_media()
    fresh()
    assert not drive.inserted and not drive.image, drive.image
    system.set_system_boot_options(target=sushy.BOOT_SOURCE_TARGET_HDD, enabled=sushy.BOOT_SOURCE_ENABLED_CONTINUOUS)
    system.reset_system(sushy.RESET_ON)
    fresh()
    assert system.boot.target == sushy.BOOT_SOURCE_TARGET_HDD, system.boot.target
    assert system.boot.enabled == sushy.BOOT_SOURCE_ENABLED_CONTINUOUS, system.boot.enabled
elif stage == "shut-down":
    system.reset_system(sushy.RESET_GRACEFUL_SHUTDOWN)
else:
    sys.exit("no such stage: " + stage)
