package lab

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"salvor/problem"
)

// Initiator is what a machine's own iSCSI adapter is set up with; the zero value: nothing.
type Initiator struct {
	Name    string
	Targets []InitiatorTarget // the first that answers is the disk
	User    string            // CHAP; empty: none
	Secret  string
}

// InitiatorTarget is one path to the adapter's disk.
type InitiatorTarget struct {
	Name    string
	Address string
	Port    int
	LUN     int
}

func (m *qemuMachine) Initiator() Initiator {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.initiator
}

// SetInitiator takes effect at the next start.
func (m *qemuMachine) SetInitiator(i Initiator) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.initiator = i
}

// spawnVolume starts QEMU with the adapter's disk, by the first path that works: QEMU logs in
// as firmware would. Without any the machine starts as it would with an adapter that found nothing.
func (m *qemuMachine) spawnVolume(args []string, i Initiator) (*qemuRun, error) {
	for _, t := range i.Targets {
		volume, err := volumeArgs(m.spec.Name, i, t)
		if err != nil {
			return nil, err
		}
		r, err := m.spawn(append(append([]string{}, args...), volume...))
		if err == nil {
			return r, nil
		}
		m.log.Warn("the adapter found no volume", "address", t.Address, "target", t.Name, "err", err)
	}
	return m.spawn(args)
}

func volumeArgs(machine string, i Initiator, t InitiatorTarget) ([]string, error) {
	drive := jsonObject{
		"driver": "iscsi", "node-name": "volume", "transport": "tcp", "target": t.Name, "lun": t.LUN,
		"portal": netip.AddrPortFrom(netip.MustParseAddr(t.Address), uint16(t.Port)).String(), "initiator-name": i.Name,
	}
	var args []string
	if i.User != "" {
		file := machine + "/chap"
		if err := os.WriteFile(file, []byte(i.Secret), 0o600); err != nil {
			return nil, err
		}
		drive["user"], drive["password-secret"] = i.User, "chap"
		args = append(args, "-object", "secret,id=chap,file="+file)
	}
	text, err := json.Marshal(drive)
	if err != nil {
		return nil, err
	}
	return append(args, "-blockdev", string(text), "-device", "virtio-scsi-pci,id=adapter",
		"-device", "scsi-hd,drive=volume,bus=adapter.0,bootindex=0"), nil
}

// The adapter as Redfish shows it.

func (b *redfishBMC) adapterID() string  { return b.systemID() + "/NetworkInterfaces/1" }
func (b *redfishBMC) functionID() string { return b.adapterID() + "/NetworkDeviceFunctions/1" }

func (b *redfishBMC) adapterRoutes(mux *http.ServeMux) {
	list, functions := b.systemID()+"/NetworkInterfaces", b.adapterID()+"/NetworkDeviceFunctions"
	mux.HandleFunc("GET "+list, serveCollection("Network Interface Collection", "NetworkInterfaceCollection", list, b.adapterID()))
	mux.HandleFunc("GET "+b.adapterID(), func(w http.ResponseWriter, _ *http.Request) {
		r := newRedfishResource(b.adapterID(), "NetworkInterface.v1_2_0.NetworkInterface", "1", "NIC 1")
		r["NetworkDeviceFunctions"], r["Status"] = odataLink(functions), healthy
		writeJSON(w, http.StatusOK, r)
	})
	mux.HandleFunc("GET "+functions, serveCollection("Network Device Function Collection", "NetworkDeviceFunctionCollection", functions, b.functionID()))
	mux.HandleFunc("GET "+b.functionID(), b.getFunction)
	mux.HandleFunc("PATCH "+b.functionID(), b.patchFunction)
}

// iscsiBoot is the part of a NetworkDeviceFunction that sets its initiator up. Secrets are written, never read.
type iscsiBoot struct {
	IPAddressType            string
	IPMaskDNSViaDHCP         bool
	InitiatorName            string
	TargetInfoViaDHCP        bool
	AuthenticationMethod     string
	CHAPUsername             string
	CHAPSecret               *string
	PrimaryTargetName        string
	PrimaryTargetIPAddress   string
	PrimaryTargetTCPPort     int
	PrimaryLUN               int
	SecondaryTargetName      string
	SecondaryTargetIPAddress string
	SecondaryTargetTCPPort   int
	SecondaryLUN             int
}

func iscsiBootOf(i Initiator) iscsiBoot {
	out := iscsiBoot{IPAddressType: "IPv4", IPMaskDNSViaDHCP: true, InitiatorName: i.Name, AuthenticationMethod: "None"}
	if i.User != "" {
		out.AuthenticationMethod, out.CHAPUsername = "CHAP", i.User
	}
	if len(i.Targets) > 0 {
		t := i.Targets[0]
		out.PrimaryTargetName, out.PrimaryTargetIPAddress, out.PrimaryTargetTCPPort, out.PrimaryLUN = t.Name, t.Address, t.Port, t.LUN
	}
	if len(i.Targets) > 1 {
		t := i.Targets[1]
		out.SecondaryTargetName, out.SecondaryTargetIPAddress, out.SecondaryTargetTCPPort, out.SecondaryLUN = t.Name, t.Address, t.Port, t.LUN
	}
	return out
}

func (b *redfishBMC) getFunction(w http.ResponseWriter, _ *http.Request) {
	boot := iscsiBootOf(b.initiator.Initiator())
	f := newRedfishResource(b.functionID(), "NetworkDeviceFunction.v1_5_0.NetworkDeviceFunction", "1", "NIC 1, function 1")
	f["NetDevFuncCapabilities"], f["NetDevFuncType"], f["Status"] = []string{"Ethernet", "iSCSI"}, "iSCSI", healthy
	f["Ethernet"] = jsonObject{"MACAddress": b.spec.MAC, "PermanentMACAddress": b.spec.MAC}
	var shown jsonObject
	text, _ := json.Marshal(boot)
	_ = json.Unmarshal(text, &shown)
	shown["AuthenticationMethod@Redfish.AllowableValues"] = []string{"None", "CHAP"}
	f["iSCSIBoot"] = shown
	w.Header().Set("ETag", etagOf(boot))
	writeJSON(w, http.StatusOK, f)
}

func (b *redfishBMC) patchFunction(w http.ResponseWriter, r *http.Request) {
	now := b.initiator.Initiator()
	boot := iscsiBootOf(now)
	if match := r.Header.Get("If-Match"); match != "" && match != "*" && strings.TrimPrefix(match, "W/") != etagOf(boot) {
		redfishError(w, http.StatusPreconditionFailed, "Base.1.8.PreconditionFailed", "the resource has changed since it was read")
		return
	}
	patch := struct {
		NetDevFuncType string
		Boot           *iscsiBoot `json:"iSCSIBoot"`
	}{Boot: &boot}
	if !decodeJSONBody(w, r, &patch) {
		return
	}
	next, err := boot.initiator(now)
	if err != nil {
		b.fail(w, err)
		return
	}
	b.initiator.SetInitiator(next)
	w.WriteHeader(http.StatusNoContent)
}

// initiator reads what was written; a secret that is left out stays.
func (p iscsiBoot) initiator(now Initiator) (Initiator, error) {
	next := Initiator{Name: p.InitiatorName}
	switch p.AuthenticationMethod {
	case "None":
	case "CHAP":
		next.User, next.Secret = p.CHAPUsername, now.Secret
		if p.CHAPSecret != nil {
			next.Secret = *p.CHAPSecret
		}
	default:
		return next, problem.Invalidf("AuthenticationMethod %q: want None or CHAP", p.AuthenticationMethod)
	}
	for _, t := range []InitiatorTarget{
		{p.PrimaryTargetName, p.PrimaryTargetIPAddress, p.PrimaryTargetTCPPort, p.PrimaryLUN},
		{p.SecondaryTargetName, p.SecondaryTargetIPAddress, p.SecondaryTargetTCPPort, p.SecondaryLUN},
	} {
		if t.Name == "" && t.Address == "" {
			continue
		}
		if a, err := netip.ParseAddr(t.Address); err != nil || !a.Is4() || t.Port < 1 || t.Port > 65535 || t.LUN < 0 {
			return next, problem.Invalidf("the target at %q port %s: want an IPv4 address and a port", t.Address, strconv.Itoa(t.Port))
		}
		next.Targets = append(next.Targets, t)
	}
	return next, nil
}
