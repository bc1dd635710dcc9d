package serve

import (
	"salvor/config"
	"salvor/storage"
	"salvor/storage/hook"
	"salvor/storage/tgt"
)

// openStorage makes what serves volumes, as the configuration says; nil: nothing is spoken to.
func openStorage(c config.Storage) (storage.Storage, error) {
	switch c.Driver {
	case "tgt":
		return tgt.New(tgt.Options{Command: c.TgtCommand, Control: c.TgtControl, Socket: c.TgtSocket, Portal: c.Portal, Files: c.TgtFiles})
	case "hook":
		return hook.New(hook.Options{Command: c.Hook, Timeout: c.HookTimeout})
	}
	return nil, nil
}

// canExportVolumes tells whether that storage makes targets for volumes.
func canExportVolumes(c config.Storage) bool {
	return c.Driver == "hook" || c.Driver == "tgt" && c.TgtFiles != ""
}
