package metal

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"salvor/client"
	"salvor/test/must"
)

// TestLife: a machine of our own endpoint becomes a server, is switched, rescued, put back and given back.
func TestLife(t *testing.T) {
	t.Parallel()
	c := newCloud(t, "")
	node := c.node("m1", nil)
	c.endpoint("self", 1)
	id := c.create("web")
	srv := c.is(id, "ACTIVE")
	if srv["OS-EXT-SRV-ATTR:instance_name"] != node {
		t.Errorf("its machine is %v, want %s", srv["OS-EXT-SRV-ATTR:instance_name"], node)
	}
	n, err := c.api.Node(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	if n.InstanceUUID != id || n.ProvisionState != "active" || n.InstanceInfo["root_gb"] == nil {
		t.Errorf("the node: instance %s, %s, %v", n.InstanceUUID, n.ProvisionState, n.InstanceInfo)
	}
	c.lent(n.InstanceInfo.Text("image_source"))

	c.must(id, object{"os-stop": nil})
	c.is(id, "SHUTOFF")
	c.must(id, object{"os-start": nil})
	c.is(id, "ACTIVE")
	c.must(id, object{"reboot": object{"type": "HARD"}})
	c.is(id, "ACTIVE")

	said := c.must(id, object{"rescue": object{"adminPass": "the-password-1"}})
	if said["adminPass"] != "the-password-1" {
		t.Errorf("rescue answered %v", said)
	}
	c.is(id, "RESCUE")
	c.becomes(node, "rescue")
	if status, said := c.act(id, object{"reboot": object{"type": "HARD"}}); status != http.StatusConflict {
		t.Errorf("a reboot in rescue: %d %v", status, said)
	}
	c.must(id, object{"unrescue": nil})
	c.is(id, "ACTIVE")
	c.becomes(node, "active")

	other := c.addImage("other")
	c.must(id, object{"rebuild": object{"imageRef": other}})
	c.is(id, "ACTIVE")

	c.call(http.MethodDelete, "/compute/v2.1/servers/"+id, nil)
	c.eventually("the server is gone", func() error {
		if srv := c.show(id); srv != nil {
			return fmt.Errorf("it is %v: %v", srv["status"], srv["fault"])
		}
		return nil
	})
	c.becomes(node, "available")
	if n, err = c.api.Node(t.Context(), node); err != nil || n.InstanceUUID != "" || len(n.InstanceInfo) != 0 {
		t.Errorf("what was given back: %v %v %v", n, n.InstanceInfo, err)
	}
	if strings.Contains(c.server.Log(), "the-password-1") {
		t.Error("the log tells the password")
	}
}

// lent proves that an image can be fetched at its address, and nothing else there.
func (c *cloud) lent(url string) {
	c.Helper()
	for _, try := range []struct {
		url    string
		status int
	}{{url, 200}, {url + "x", 404}, {strings.Replace(url, "/lent-image/", "/lent-image/0", 1), 404}} {
		answer, err := http.Get(try.url)
		if err != nil {
			c.Fatalf("%s: %v", url, err)
		}
		answer.Body.Close()
		if answer.StatusCode != try.status {
			c.Errorf("%s: %d, want %d", try.url, answer.StatusCode, try.status)
		}
	}
}

// TestRefusals: what a machine cannot do is said at the door.
func TestRefusals(t *testing.T) {
	t.Parallel()
	c := newCloud(t, "")
	c.node("m1", nil)
	c.endpoint("self", 1)
	id := c.create("web")
	c.is(id, "ACTIVE")
	volume := c.call(http.MethodPost, "/volume/v3/volumes", object{"volume": object{"size": 1, "metadata": portal}})["volume"].(object)["id"]
	for _, try := range []struct {
		body   object
		status int
	}{
		{object{"pause": nil}, 400}, {object{"suspend": nil}, 400},
		{object{"rescue": object{"rescue_image_ref": c.image}}, 400},
		{object{"unrescue": nil}, 409},
	} {
		if status, said := c.act(id, try.body); status != try.status {
			t.Errorf("%v: %d %v", try.body, status, said)
		}
	}
	if status, said := c.ask(http.MethodPost, "/compute/v2.1/servers/"+id+"/os-volume_attachments", object{"volumeAttachment": object{"volumeId": volume}}); status != 400 {
		t.Errorf("attach a volume: %d %v", status, said)
	}
	late := c.create("late")
	c.eventually("a second server finds no machine", func() error {
		srv := c.show(late)
		if srv["status"] != "ERROR" || !strings.Contains(fmt.Sprint(srv["fault"]), "No valid host") {
			return fmt.Errorf("%v %v", srv["status"], srv["fault"])
		}
		return nil
	})
}

// TestFollow: what is done to a machine beside us is seen; one that is gone leaves its server in error.
func TestFollow(t *testing.T) {
	t.Parallel()
	c := newCloud(t, "")
	node := c.node("m1", nil)
	c.endpoint("self", 1)
	id := c.create("web")
	c.is(id, "ACTIVE")
	must.OK(t, c.api.SetPower(t.Context(), node, off))
	c.is(id, "SHUTOFF")
	must.OK(t, c.api.Provision(t.Context(), node, rescueWith("beside us")))
	c.is(id, "RESCUE")
	c.must(id, object{"unrescue": nil})
	c.is(id, "ACTIVE")
	must.OK(t, c.api.Provision(t.Context(), node, undeploy))
	srv := c.is(id, "ERROR")
	if !strings.Contains(fmt.Sprint(srv["fault"]), "machine is gone") {
		t.Errorf("its fault: %v", srv["fault"])
	}
	c.call(http.MethodDelete, "/compute/v2.1/servers/"+id, nil)
	c.eventually("the server is gone", func() error {
		if c.show(id) != nil {
			return fmt.Errorf("it is there")
		}
		return nil
	})
}

// TestRescueFailure: the node's own words are the server's fault, and the way back is open.
func TestRescueFailure(t *testing.T) {
	t.Parallel()
	c := newCloud(t, "")
	node := c.node("m1", client.Record{"rescue_interface": "agent", "driver_info": object{"rescue_kernel": "file:///nowhere", "rescue_ramdisk": "file:///nowhere"}})
	c.endpoint("self", 1)
	id := c.create("web")
	c.is(id, "ACTIVE")
	c.must(id, object{"rescue": object{}})
	srv := c.is(id, "ERROR")
	fault := fmt.Sprint(srv["fault"].(object)["message"])
	if !strings.HasPrefix(fault, "Instance "+id+" cannot be rescued: Driver Error: ") {
		t.Errorf("its fault: %s", fault)
	}
	t.Log(fault)
	n := must.Get(c.api.Node(t.Context(), node))(t)
	t.Logf("the node: %s: %s", n.ProvisionState, n.LastError)
}

// TestVolume: a server boots from a volume that its machine's connector may reach; nothing of it is left at the node afterwards.
func TestVolume(t *testing.T) {
	t.Parallel()
	c := newCloud(t, "")
	node := c.node("m1", client.Record{"storage_interface": "external", "properties": object{"capabilities": "iscsi_boot:true"}})
	c.endpoint("self", 1)
	volume := c.call(http.MethodPost, "/volume/v3/volumes", object{"volume": object{"size": 1, "metadata": portal}})["volume"].(object)["id"].(string)
	boot := func(name string) string {
		made := c.call(http.MethodPost, "/compute/v2.1/servers", object{"server": object{"name": name, "flavorRef": c.flavor, "networks": "none",
			"block_device_mapping_v2": []object{{"uuid": volume, "source_type": "volume", "destination_type": "volume", "boot_index": 0}}}})
		return made["server"].(object)["id"].(string)
	}
	gone := func(id string) {
		c.call(http.MethodDelete, "/compute/v2.1/servers/"+id, nil)
		c.eventually("the server is gone", func() error {
			if srv := c.show(id); srv != nil {
				return fmt.Errorf("it is %v: %v", srv["status"], srv["fault"])
			}
			return nil
		})
	}
	early := boot("early")
	if srv := c.is(early, "ERROR"); !strings.Contains(fmt.Sprint(srv["fault"]), "no volume connector of type iqn") {
		t.Errorf("without a connector: %v", srv["fault"])
	}
	gone(early)
	c.becomes(node, "available")
	must.Get(c.api.Create(t.Context(), client.VolumeConnectors, client.Record{"node_uuid": node, "type": "iqn", "connector_id": "iqn.2026-11.test:m1"}))(t)
	c.eventually("the endpoint tells its machine again", func() error {
		if hosts := c.call(http.MethodGet, "/salvor/v1/hosts", nil); !strings.Contains(fmt.Sprint(hosts), "CUSTOM_BAREMETAL:1") {
			return fmt.Errorf("%v", hosts)
		}
		return nil
	})
	id := boot("web")
	c.is(id, "ACTIVE")
	targets, err := c.api.List(t.Context(), client.VolumeTargets, client.Query{Detail: true})
	if err != nil || len(targets) != 1 {
		t.Fatalf("targets %v, %v", targets, err)
	}
	if p, _ := targets[0]["properties"].(object); targets[0].Text("volume_id") != volume || p["target_iqn"] != portal["salvor:iqn"] {
		t.Errorf("the target: %v", targets[0])
	}
	n, err := c.api.Node(t.Context(), node)
	if err != nil || n.InstanceInfo["image_source"] != nil {
		t.Errorf("the node has an image beside its volume: %v %v", n.InstanceInfo, err)
	}
	gone(id)
	c.becomes(node, "available")
	if targets, err = c.api.List(t.Context(), client.VolumeTargets, client.Query{}); err != nil || len(targets) != 0 {
		t.Errorf("left behind: %v %v", targets, err)
	}
}
