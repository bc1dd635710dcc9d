package metal

import "testing"

// TestCallbackPath: one name may follow the port, as Metal3's FakeIPA announces itself; nothing else may.
func TestCallbackPath(t *testing.T) {
	for text, good := range map[string]bool{
		"http://192.0.2.1:9999": true, "https://[2001:db8::1]:9999/": true, "http://192.0.2.1:9999/1be26c0b-03f2-4d2e-ae87-c02d7f33c123": true,
		"http://192.0.2.1:9999/v1/nodes": false, "http://192.0.2.1:9999/..": false, "http://192.0.2.1:9999/a%2fb": false, "http://192.0.2.1:9999/a?b": false,
	} {
		if err := new(Nodes).checkCallback(text); (err == nil) != good {
			t.Errorf("%s: %v", text, err)
		}
	}
}
