package ironic

import "salvor/access"

// hardwareRoutes are what a node's hardware is asked or told, and what drivers say of themselves.
func (s *server) hardwareRoutes() []route {
	return []route{
		{method: "PUT", path: "/v1/nodes/{node}/states/raid", since: 12, do: s.unsupported("raid")},
		{method: "GET", path: "/v1/nodes/{node}/states/console", need: access.Read, do: s.unsupported("console")},
		{method: "PUT", path: "/v1/nodes/{node}/states/console", do: s.unsupported("console")},
		{method: "PUT", path: "/v1/nodes/{node}/states/boot_mode", since: 76, do: s.unsupported("set_boot_mode")},
		{method: "PUT", path: "/v1/nodes/{node}/states/secure_boot", since: 76, do: s.unsupported("set_secure_boot_state")},
		{method: "GET", path: "/v1/nodes/{node}/management/boot_device", need: access.Read, do: s.getBootDevice},
		{method: "PUT", path: "/v1/nodes/{node}/management/boot_device", do: s.setBootDevice},
		{method: "GET", path: "/v1/nodes/{node}/management/boot_device/supported", need: access.Read, do: s.supportedBootDevices},
		{method: "PUT", path: "/v1/nodes/{node}/management/inject_nmi", since: 29, do: s.unsupported("inject_nmi")},
		{method: "GET", path: "/v1/nodes/{node}/management/indicators", need: access.Read, since: 63, do: s.unsupported("get_supported_indicators")},
		{method: "GET", path: "/v1/nodes/{node}/vendor_passthru/methods", need: access.Read, do: s.nodeMethods},
		{method: "*", path: "/v1/nodes/{node}/vendor_passthru", do: s.unsupported("vendor_passthru")},
		{method: "GET", path: "/v1/nodes/{node}/vifs", need: access.Read, since: 28, do: s.listVIFs},
		{method: "POST", path: "/v1/nodes/{node}/vifs", since: 28, do: s.attachVIF},
		{method: "DELETE", path: "/v1/nodes/{node}/vifs/{vif}", since: 28, do: s.detachVIF},
		{method: "GET", path: "/v1/nodes/{node}/bios", need: access.Read, since: 40, do: s.listBIOS},
		{method: "GET", path: "/v1/nodes/{node}/bios/{setting}", need: access.Read, since: 40, do: s.getBIOS},
		{method: "GET", path: "/v1/nodes/{node}/inventory", need: access.Read, since: 81, do: s.getInventory},
		{method: "GET", path: "/v1/drivers", need: access.Read, do: s.listDrivers},
		{method: "GET", path: "/v1/drivers/{driver}", need: access.Read, do: s.getDriver},
		{method: "GET", path: "/v1/drivers/{driver}/properties", need: access.Read, do: s.driverProperties},
		{method: "GET", path: "/v1/drivers/{driver}/vendor_passthru/methods", need: access.Read, do: s.driverMethods},
	}
}
