package metal

import "salvor/wire/ironic"

// What is asked of a machine beside the server that it is.
var (
	off      = ironic.PowerRequest{Target: "power off"}
	undeploy = ironic.ProvisionRequest{Target: "deleted"}
)

func rescueWith(password string) ironic.ProvisionRequest {
	return ironic.ProvisionRequest{Target: "rescue", RescuePassword: password}
}

// portal is where a volume lies that nobody serves here.
var portal = object{"salvor:portal": "127.0.0.1:3260", "salvor:iqn": "iqn.2026-11.test:v", "salvor:lun": "1"}
