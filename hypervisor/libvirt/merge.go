package libvirt

import (
	"slices"
	"strconv"
	"strings"

	"github.com/beevik/etree"

	"salvor/problem"
)

// This file merges three definitions of one guest, as a version control system merges three texts: the one that salvor last wrote
// (base), the one that libvirt has now (current), and the one that salvor is about to write (next). What somebody else changed between
// base and current is an edit. Define applies the edits to next, so that no work of another tool is lost.

// edit is one place of a definition where current differs from base: an element that was added, removed or has another text, or one of
// its attributes.
type edit struct {
	// path are the keys of the elements below <domain>, the changed one last: ["devices", "disk vda", "source"].
	path []string
	// attr is the attribute that changed; empty: the element itself.
	attr string
	// was and now are the element in base and in current; nil: it is not there.
	was, now *etree.Element
}

// added tells whether the place is in current only, removed whether it is in base only.
func (e edit) added() bool {
	return e.was == nil || e.attr != "" && e.was.SelectAttr(e.attr) == nil
}
func (e edit) removed() bool {
	return e.now == nil || e.attr != "" && e.now.SelectAttr(e.attr) == nil
}

// device is the key of the device that the edit lies in, or is; empty: it concerns no device.
func (e edit) device() string {
	if len(e.path) > 1 && e.path[0] == "devices" {
		return e.path[1]
	}
	return ""
}

// whole tells whether the edit is of a whole device.
func (e edit) whole() bool { return e.attr == "" && e.device() != "" && len(e.path) == 2 }

// kind is the first word of a device's key: "disk" of "disk vda".
func kind(key string) string {
	word, _, _ := strings.Cut(key, " ")
	return word
}

// notCompared are elements below <domain> that are no part of how a guest runs.
var notCompared = []string{"metadata", "uuid", "name", "title", "description"}

// findEdits lists what differs from base to current, both as libvirt itself wrote them.
func findEdits(base, current *etree.Element) []edit { return appendEdits(nil, nil, base, current) }

func appendEdits(out []edit, path []string, base, current *etree.Element) []edit {
	for _, name := range attributesOf(base, current) {
		if is, was := current.SelectAttr(name), base.SelectAttr(name); len(path) > 0 && (is == nil || was == nil || is.Value != was.Value) {
			out = append(out, edit{path: path, attr: name, was: base, now: current})
		}
	}
	if strings.TrimSpace(base.Text()) != strings.TrimSpace(current.Text()) {
		out = append(out, edit{path: path, was: base, now: current})
	}
	before, after := childrenOf(base), childrenOf(current)
	for _, key := range keysOf(before, after) {
		if len(path) == 0 && slices.Contains(notCompared, key) || key == "alias" {
			continue
		}
		below := append(slices.Clone(path), key)
		was, is := before.get(key), after.get(key)
		switch {
		case was == nil || is == nil:
			out = append(out, edit{path: below, was: was, now: is})
		default:
			out = appendEdits(out, below, was, is)
		}
	}
	return out
}

// attributesOf names the attributes of both elements, without passwords, which libvirt tells to some readers only.
func attributesOf(elements ...*etree.Element) []string {
	var out []string
	for _, e := range elements {
		for _, a := range e.Attr {
			if name := a.FullKey(); name != "passwd" && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// keyed are the children of an element by their keys, in order.
type keyed []struct {
	key string
	*etree.Element
}

func (k keyed) get(key string) *etree.Element {
	for _, c := range k {
		if c.key == key {
			return c.Element
		}
	}
	return nil
}

func keysOf(all ...keyed) []string {
	var out []string
	for _, k := range all {
		for _, c := range k {
			if !slices.Contains(out, c.key) {
				out = append(out, c.key)
			}
		}
	}
	return out
}

// childrenOf gives each child a key that finds the same thing in another definition; equal keys are numbered.
func childrenOf(e *etree.Element) keyed {
	var out keyed
	count := map[string]int{}
	for _, child := range e.ChildElements() {
		key := keyOf(child)
		if count[key]++; count[key] > 1 {
			key += "#" + strconv.Itoa(count[key])
		}
		out = append(out, struct {
			key string
			*etree.Element
		}{key, child})
	}
	return out
}

// identities are the attributes by which libvirt tells the devices of a kind apart: child/@attribute, or @attribute of the device.
var identities = map[string][]string{
	"disk": {"target/@dev"}, "interface": {"mac/@address"}, "controller": {"@type", "@index"}, "serial": {"target/@port"}, "console": {"target/@type", "target/@port"},
	"parallel": {"target/@port"}, "channel": {"target/@name"}, "graphics": {"@type"}, "filesystem": {"target/@dir"}, "input": {"@type", "@bus"},
	"feature": {"@name"}, "timer": {"@name"},
}

func keyOf(e *etree.Element) string {
	key := e.FullTag()
	for _, where := range identities[key] {
		at, from := e, where
		if child, attr, nested := strings.Cut(where, "/"); nested {
			at, from = e.SelectElement(child), attr
		}
		if at != nil {
			key = strings.TrimSpace(key + " " + strings.ToLower(at.SelectAttrValue(strings.TrimPrefix(from, "@"), "")))
		}
	}
	return key
}

// salvorsOwn are what the record of the server decides, whatever somebody else wrote.
var salvorsOwn = []string{"memory", "currentMemory", "vcpu", "maxMemory"}

// requiredKinds are the kinds of devices that a server needs: a device of these that somebody else removed comes back.
var requiredKinds = []string{"interface", "channel", "serial", "console", "controller"}

// recordDecides are the kinds of devices that the record of a server decides: one that salvor writes no more is not carried along.
var recordDecides = []string{"disk", "interface", "channel", "serial", "console"}

// applyEdits changes next by the edits between base and current, and gives those that it applied. Conflict: an edit and next cannot both
// be: the guest would lose a disk, or get another one.
func applyEdits(next, current *etree.Element, edits []edit, guest string) (applied []edit, err error) {
	for _, e := range edits {
		if err := disagreement(next, current, e, guest); err != nil {
			return nil, err
		}
		if applyEdit(next, current, e) {
			applied = append(applied, e)
		}
	}
	freeAddresses(next, applied)
	return applied, nil
}

// disagreement is Conflict for a disk that somebody else attached where salvor attaches one, or detached though the server has it.
func disagreement(next, current *etree.Element, e edit, guest string) error {
	if kind(e.device()) != "disk" {
		return nil
	}
	here := find(next, e.path[:2])
	target := strings.TrimPrefix(e.device(), "disk ")
	switch {
	case here == nil:
	case !e.whole():
		if isAnotherDisk(next, current, e) && e.movesDisk() {
			return problem.Conflictf("disk %s of guest %s was changed by someone other than salvor, and its server has another disk there now; detach the changed disk: virsh detach-disk %s %s --persistent", target, guest, guest, target)
		}
	case e.was == nil && serialOf(here) != serialOf(e.now):
		return problem.Conflictf("guest %s has a disk %s that salvor did not attach, where its server gets another one; detach it: virsh detach-disk %s %s --persistent", guest, target, guest, target)
	case e.now == nil && serialOf(here) == serialOf(e.was):
		remedy := "detach the volume " + serialOf(e.was) + " from the server, too"
		if c := attachCommand(guest, e.was); c != "" {
			remedy = "attach it again: " + c
		}
		return problem.Conflictf("disk %s was detached from guest %s by someone other than salvor, and its server has it still; %s", target, guest, remedy)
	}
	return nil
}

// isAnotherDisk tells whether next has another disk in the place of the disk that an edit changed.
func isAnotherDisk(next, current *etree.Element, e edit) bool {
	if kind(e.device()) != "disk" {
		return false
	}
	here, there := find(next, e.path[:2]), find(current, e.path[:2])
	return here != nil && there != nil && serialOf(here) != serialOf(there)
}

// movesDisk tells whether an edit of a disk changes where its data lie, or how they are read.
func (e edit) movesDisk() bool {
	if len(e.path) == 2 {
		return e.attr == "type"
	}
	return e.path[2] == "source" || e.path[2] == "backingStore" || e.path[2] == "driver" && e.attr == "type"
}

func serialOf(disk *etree.Element) string {
	if s := disk.SelectElement("serial"); s != nil {
		return s.Text()
	}
	return ""
}

// applyEdit changes next by one edit; false: it stays as salvor writes it.
func applyEdit(next, current *etree.Element, e edit) bool {
	if slices.Contains(salvorsOwn, e.path[0]) || !e.whole() && isAnotherDisk(next, current, e) {
		return false
	}
	last := len(e.path) - 1
	if prefix, _, qualified := strings.Cut(e.path[0], ":"); qualified {
		setAttribute(next, "xmlns:"+prefix, current)
	}
	for i := range last {
		if find(next, e.path[:i+1]) != nil {
			continue
		}
		// libvirt added this element to what salvor wrote, or salvor writes it no more.
		if i == 0 || slices.Contains(recordDecides, kind(e.device())) {
			return false
		}
		find(next, e.path[:i]).AddChild(find(current, e.path[:i+1]).Copy())
		return true
	}
	parent := find(next, e.path[:last])
	here := childrenOf(parent).get(e.path[last])
	switch {
	case e.attr != "" && here == nil && !slices.Contains(recordDecides, kind(e.device())):
		parent.AddChild(e.now.Copy())
	case e.attr != "" && here == nil:
		return false
	case e.attr != "":
		setAttribute(here, e.attr, e.now)
	case e.now == nil && (here == nil || slices.Contains(requiredKinds, kind(e.device()))):
		return false
	case e.now == nil:
		parent.RemoveChild(here)
	case e.was == nil && here != nil && e.whole() && kind(e.device()) == "disk":
		return false // salvor attached it, and could not note that
	case e.was == nil:
		replace(parent, here, e.now)
	case here == nil || strings.TrimSpace(here.Text()) != strings.TrimSpace(e.was.Text()):
		return false // salvor itself changes it: a rescue has other UEFI variables
	default:
		here.SetText(e.now.Text())
	}
	return true
}

// freeAddresses takes the address of an added device away where salvor gives the same one to a device of its own; libvirt finds another.
func freeAddresses(next *etree.Element, applied []edit) {
	devices := next.SelectElement("devices")
	if devices == nil {
		return
	}
	for _, e := range applied {
		if !e.whole() || e.was != nil {
			continue
		}
		device := childrenOf(devices).get(e.path[1])
		if device == nil || device.SelectElement("address") == nil {
			continue
		}
		own := addressOf(device)
		for _, other := range devices.ChildElements() {
			if other != device && addressOf(other) == own {
				device.RemoveChild(device.SelectElement("address"))
				break
			}
		}
	}
}

// addressOf is the address of a device as one text, with numbers as libvirt and salvor both may write them; empty: it has none.
func addressOf(device *etree.Element) string {
	address := device.SelectElement("address")
	if address == nil {
		return ""
	}
	out := address.SelectAttrValue("type", "")
	for _, name := range []string{"domain", "bus", "slot", "function", "controller", "target", "unit", "port"} {
		n, err := strconv.ParseUint(address.SelectAttrValue(name, "0"), 0, 32)
		if err != nil {
			return ""
		}
		out += " " + name + strconv.FormatUint(n, 10)
	}
	return out
}

// revertEdits takes the edits out of a definition, so that what is left is what salvor wrote.
func revertEdits(definition *etree.Element, edits []edit) {
	for _, e := range slices.Backward(edits) {
		parent := find(definition, e.path[:len(e.path)-1])
		if parent == nil {
			continue
		}
		here := childrenOf(parent).get(e.path[len(e.path)-1])
		switch {
		case e.attr != "":
			setAttribute(here, e.attr, e.was)
		case e.was == nil:
			if here != nil {
				parent.RemoveChild(here)
			}
		case e.now == nil:
			if here == nil {
				parent.AddChild(e.was.Copy())
			}
		case here != nil:
			here.SetText(e.was.Text())
		}
	}
}

// find is the element at a path of keys; nil: there is none.
func find(root *etree.Element, path []string) *etree.Element {
	for _, key := range path {
		if root = childrenOf(root).get(key); root == nil {
			return nil
		}
	}
	return root
}

// setAttribute makes an attribute what it is in another element; nil: neither is there.
func setAttribute(e *etree.Element, name string, like *etree.Element) {
	if e == nil || like == nil {
		return
	}
	if a := like.SelectAttr(name); a != nil {
		e.CreateAttr(name, a.Value)
		return
	}
	e.RemoveAttr(name)
}

func replace(parent, old, by *etree.Element) {
	if old != nil {
		parent.RemoveChild(old)
	}
	parent.AddChild(by.Copy())
}
