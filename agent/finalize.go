package agent

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-crypt/crypt/algorithm/shacrypt"

	"salvor/agent/network"
	"salvor/agent/step"
	"salvor/networkdata"
	"salvor/problem"
	wire "salvor/wire/agent"
)

// Users whose password a rescue sets.
const (
	rescueUser = "rescue"
	rootUser   = "root"
)

const (
	maxPassword = 1024
	rounds      = 5000
)

// isCryptHash knows a sha256 or sha512 crypt(3) hash and nothing else: what stands in
// /etc/shadow may not hold a colon or the end of a line. By hand, since a regular
// expression for it costs a slow machine a tenth of a second at start.
func isCryptHash(hash string) bool {
	parts := strings.Split(hash, "$") // "", "6", ["rounds=N",] salt, digest
	if len(parts) == 5 && strings.HasPrefix(parts[2], "rounds=") {
		n, err := strconv.Atoi(strings.TrimPrefix(parts[2], "rounds="))
		if err != nil || n < 1000 || n > 999_999_999 {
			return false
		}
		parts = slices.Delete(parts, 2, 3)
	}
	if len(parts) != 4 || parts[0] != "" || len(parts[2]) > 16 || strings.Trim(parts[2]+parts[3], alphanumeric+"./") != "" {
		return false
	}
	return (parts[1] == "5" && len(parts[3]) == 43) || (parts[1] == "6" && len(parts[3]) == 86)
}

// finalize opens the machine: the plan for the tenant's network first, the keys and the password
// last, so that what fails half-way opens nothing.
func (a *Agent) finalize(order wire.FinalizeParams) error {
	var keys []string
	if order.Salvor != nil {
		keys = order.Salvor.AuthorizedKeys
	}
	if err := checkKeys(keys); err != nil {
		return err
	}
	hash := ""
	if byKey := len(keys) > 0 && order.RescuePassword == ""; !byKey {
		var err error
		if hash, err = passwordHash(order); err != nil {
			return err
		}
	}
	plan, err := a.plan(order.Salvor)
	if err != nil {
		return err
	}
	if err := network.WritePlan(a.config.Root, plan); err != nil {
		return fmt.Errorf("write the network plan: %w", err)
	}
	if order.Salvor != nil {
		if err := writeVolumes(a.config.Root, order.Salvor.Volumes); err != nil {
			return fmt.Errorf("note the volumes: %w", err)
		}
	}
	users := []string{rescueUser}
	if a.params.RootPassword || (order.Salvor != nil && order.Salvor.RootPassword) {
		users = append(users, rootUser)
	}
	// The keys come before the password: ssh starts after the agent, so a half that fails opens nothing.
	err = a.writeSession(order.Salvor)
	if err == nil {
		err = writeKeys(a.config.Root, keys)
	}
	if err == nil && hash != "" {
		err = setPasswords(a.config.Root, hash, users)
	}
	if err != nil {
		removeSession(a.config.Root)
		network.RemovePlan(a.config.Root)
		return err
	}
	a.log.Info("rescue credential set", "node", a.session.node, "password", hash != "", "users", strings.Join(users, ","), "keys", len(keys))
	return nil
}

// hostKeyTime bounds the wait for the ssh host key, which the ramdisk's init makes while the machine boots.
const hostKeyTime = 10 * time.Second

// hostKey reads the public host key with which ssh will answer in this boot.
func (a *Agent) hostKey(ctx context.Context, _ step.Params) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, hostKeyTime)
	defer cancel()
	for {
		output, err := os.ReadFile(filepath.Join(a.config.Root, "/", sshKeyFile))
		// The fingerprint is its last line: before it the file is not whole.
		if key := parseHostKey(string(output)); err == nil && key != "" && parseFingerprint(string(output)) != "" {
			return wire.HostKey{PublicKey: key}, nil
		}
		if err := a.sleep(ctx, channelPoll); err != nil {
			return nil, problem.Unavailablef("this ramdisk has made no ssh host key within %s", hostKeyTime)
		}
	}
}

// driveTime bounds the wait for the disks before the config drive is looked for.
const driveTime = 5 * time.Second

// checkNetwork tells what the network step will have of the network data, or of the config drive on a disk. Nothing is changed.
func (a *Agent) checkNetwork(ctx context.Context, p step.Params) (any, error) {
	text := []byte(p["network_data"])
	if len(text) == 0 || string(text) == "null" {
		ctx, cancel := context.WithTimeout(ctx, driveTime)
		defer cancel()
		if a.config.Root != "" || a.disksReady(ctx) != nil {
			return wire.NetworkCheck{}, nil
		}
		drive, err := network.ConfigDrive()
		if err != nil {
			return wire.NetworkCheck{}, nil // without a drive DHCP is asked
		}
		text = drive
	}
	data, err := networkdata.Parse(text)
	if err != nil {
		return wire.NetworkCheck{LeftOut: []string{err.Error(), networkdata.AllLeftOut}}, nil
	}
	macs, err := a.macs()
	if err != nil {
		return nil, err
	}
	found := data.Forecast(macs)
	check := wire.NetworkCheck{LeftOut: found.LeftOut}
	for _, address := range found.Addresses {
		check.Addresses = append(check.Addresses, address.String())
	}
	return check, nil
}

// passwordHash takes a hash, or hashes a plain password: a real Ironic that does not
// insist on hashes sends one after an agent's refusal, or in its early versions always.
func passwordHash(order wire.FinalizeParams) (string, error) {
	if order.Hashed {
		if !isCryptHash(order.RescuePassword) {
			return "", problem.Invalidf("rescue_password is no sha256 or sha512 crypt hash")
		}
		return order.RescuePassword, nil
	}
	if strings.TrimSpace(order.RescuePassword) == "" {
		return "", problem.Invalidf("rescue_password is missing or blank")
	}
	if len(order.RescuePassword) > maxPassword || strings.ContainsAny(order.RescuePassword, "\x00\r\n") {
		return "", problem.Invalidf("rescue_password is longer than %d bytes or holds an end of line", maxPassword)
	}
	// The rounds of crypt(3) itself: the library's own default takes seconds here.
	hasher, err := shacrypt.New(shacrypt.WithVariant(shacrypt.VariantSHA512), shacrypt.WithIterations(rounds))
	if err != nil {
		return "", fmt.Errorf("hash rescue password: %w", err)
	}
	digest, err := hasher.Hash(order.RescuePassword)
	if err != nil {
		return "", fmt.Errorf("hash rescue password: %w", err)
	}
	return digest.Encode(), nil
}

// plan is what the network step needs to know from here.
func (a *Agent) plan(extras *wire.Extras) (network.Plan, error) {
	plan := network.Plan{Move: network.MoveUnknown}
	if extras != nil {
		plan.Move = network.MoveNo
		if extras.TenantMove {
			plan.Move = network.MoveYes
		}
		if err := a.planExtras(&plan, extras); err != nil {
			return plan, err
		}
	}
	before, err := network.Leases(a.config.Root)
	if err != nil {
		return plan, fmt.Errorf("note the addresses held: %w", err)
	}
	plan.Before = before
	return plan, nil
}

// planExtras takes the network data as they are, since the network step follows what it can, and the NICs for ssh that may be there. Invalid: none of
// those is a NIC of the machine or of the data.
func (a *Agent) planExtras(plan *network.Plan, extras *wire.Extras) error {
	known, err := a.macs()
	if err != nil {
		return err
	}
	if data := extras.NetworkData; len(data) > 0 && string(data) != "null" {
		plan.NetworkData = data
		if parsed, err := networkdata.Parse(data); err == nil {
			for _, link := range parsed.Links {
				known = append(known, link.MAC)
			}
		}
	}
	for _, text := range extras.SSHInterfaces {
		mac, err := net.ParseMAC(text)
		if err != nil || len(mac) != 6 {
			return problem.Invalidf("ssh_interfaces holds %.40q: want MAC addresses", text)
		}
		if slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, mac.String()) }) {
			plan.SSHInterfaces = append(plan.SSHInterfaces, mac.String())
		}
	}
	if len(extras.SSHInterfaces) > 0 && len(plan.SSHInterfaces) == 0 {
		return problem.Invalidf("ssh_interfaces holds %s: this machine has no such NIC", strings.Join(extras.SSHInterfaces, ", "))
	}
	return nil
}
