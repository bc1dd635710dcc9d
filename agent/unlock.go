package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"salvor/agent/examine"
	"salvor/agent/network"
	"salvor/diagnose"
	"salvor/problem"
	wire "salvor/wire/agent"
)

// Files by which the ramdisk's init and the channel tell each other how far they are.
const (
	unlockedFile = "run/salvor/unlocked" // the credential and the network plan are written
	servingFile  = "run/salvor/serving"  // a connection to ssh is answered
	sshKeyFile   = "run/salvor/ssh-key"  // what dropbearkey said
)

const (
	maxUnlock   = wire.MaxUnlock
	channelPoll = 50 * time.Millisecond
	maxSSHKeys  = 100
)

// Unlock serves the rescue channel of a virtual machine: each line that the host writes
// brings the credential, and is answered by the fingerprint of the ssh key once ssh answers. A
// host that lost the answer asks again; the same credential twice changes nothing. It ends with ctx only.
type Unlock struct {
	Root    string // empty: the initramfs that it runs in
	Version string
	Log     *slog.Logger
	// Port opens the channel; nil: the virtio port of its name.
	Port func() (io.ReadWriteCloser, error)
	// Examiner looks at the disks; nil: examine.Run, which a Root refuses.
	Examiner func(ctx context.Context, r examine.Request) (*diagnose.Examination, error)
}

// Run serves the channel.
func (u *Unlock) Run(ctx context.Context) error {
	if err := Allowed(u.Root); err != nil {
		return err
	}
	open := u.Port
	if open == nil {
		open = openChannel
	}
	for {
		port, err := open()
		if err == nil {
			err = u.serve(ctx, port)
			_ = port.Close()
		}
		if ctx.Err() != nil {
			return nil
		}
		u.Log.Debug("rescue channel", "error", err)
		if err := sleepContext(ctx, channelPoll); err != nil {
			return nil
		}
	}
}

// openChannel finds the port by its name: the ramdisk has no udev that would.
func openChannel() (io.ReadWriteCloser, error) {
	ports, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return nil, err
	}
	for _, file := range ports {
		name, err := os.ReadFile(file)
		if err == nil && strings.TrimSpace(string(name)) == wire.ChannelName {
			return os.OpenFile(filepath.Join("/dev", filepath.Base(filepath.Dir(file))), os.O_RDWR, 0)
		}
	}
	return nil, problem.NotFoundf("no virtio port is called %s", wire.ChannelName)
}

// serve answers lines until the port is closed from outside: without a host at the other end a read finds the end of file.
func (u *Unlock) serve(ctx context.Context, port io.ReadWriter) error {
	lines := bufio.NewReaderSize(port, maxUnlock)
	for {
		line, err := lines.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			return problem.Invalidf("a line of the channel is longer than %d bytes", maxUnlock)
		case err != nil:
			return err
		}
		answer := wire.Unlocked{Version: wire.ChannelVersion, Agent: wire.Product + u.Version}
		order, err := parseUnlock(line)
		isWhole := json.Valid(line)
		clear(line) // it may hold keys
		switch {
		case err != nil:
		case order.Examine != nil:
			begun := answer
			begun.Examining = true
			if err := writeAnswer(port, begun); err != nil {
				return err
			}
			answer.Examination, err = u.examineDisks(ctx, *order.Examine)
		default:
			var output string
			output, err = u.take(ctx, order)
			answer.HostKey, answer.Fingerprint = parseHostKey(output), parseFingerprint(output)
		}
		if err != nil {
			answer.Error = err.Error()
		}
		// The end of a line whose begin went to somebody else, as of a host that was killed: the host asks again.
		answer.Retry = err != nil && !isWhole
		if err := writeAnswer(port, answer); err != nil {
			return err
		}
	}
}

func writeAnswer(port io.Writer, answer wire.Unlocked) error {
	text, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	_, err = port.Write(append(text, '\n'))
	return err
}

// parseUnlock reads a line of the host.
func parseUnlock(line []byte) (wire.Unlock, error) {
	var order wire.Unlock
	if err := json.Unmarshal(line, &order); err != nil {
		return order, problem.Invalidf("the line is no JSON of the expected form")
	}
	if order.Version != wire.ChannelVersion {
		return order, problem.Invalidf("version %d of the channel; this agent speaks %d", order.Version, wire.ChannelVersion)
	}
	return order, nil
}

// take opens the rescue system by one line, and gives what dropbearkey printed of its key.
func (u *Unlock) take(ctx context.Context, order wire.Unlock) (string, error) {
	if err := u.open(order); err != nil {
		return "", err
	}
	at := func(name string) string { return filepath.Join(u.Root, "/", name) }
	if err := os.WriteFile(at(unlockedFile), nil, 0o600); err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(at(servingFile)); err == nil {
			break
		}
		if err := sleepContext(ctx, channelPoll); err != nil {
			return "", err
		}
	}
	output, err := os.ReadFile(at(sshKeyFile))
	return string(output), err
}

// open writes what the line brought; the password comes last, so that what fails half-way opens nothing.
func (u *Unlock) open(order wire.Unlock) error {
	if order.Hash == "" && len(order.Keys) == 0 {
		return problem.Invalidf("the line brings neither a hash nor a key")
	}
	if order.Hash != "" && !isCryptHash(order.Hash) {
		return problem.Invalidf("hash is no sha256 or sha512 crypt hash")
	}
	if err := checkKeys(order.Keys); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(u.Root, "/", unlockedFile)); errors.Is(err, fs.ErrNotExist) {
		// Only before the network is up: a second line changes no address.
		plan := network.Plan{Move: network.MoveNo}
		if data := order.NetworkData; len(data) > 0 && string(data) != "null" {
			plan.NetworkData = data
		}
		if err := network.WritePlan(u.Root, plan); err != nil {
			return fmt.Errorf("write the network plan: %w", err)
		}
	}
	if err := writeKeys(u.Root, order.Keys); err != nil {
		return fmt.Errorf("write the ssh keys: %w", err)
	}
	if order.Hash == "" {
		return nil
	}
	return setPasswords(u.Root, order.Hash, []string{rescueUser, rootUser})
}

func checkKeys(keys []string) error {
	if len(keys) > maxSSHKeys {
		return problem.Invalidf("%d ssh keys; at most %d are taken", len(keys), maxSSHKeys)
	}
	for _, k := range keys {
		if strings.ContainsAny(k, "\r\n\x00") || len(strings.Fields(k)) < 2 {
			return problem.Invalidf("an ssh key is no line of the form TYPE KEY")
		}
	}
	return nil
}

// writeKeys lets the keys in as both users.
func writeKeys(root string, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	tree, err := network.OpenRoot(root)
	if err != nil {
		return err
	}
	defer tree.Close()
	for _, home := range []string{"home/" + rescueUser, "root"} {
		folder := home + "/.ssh"
		if err := tree.Mkdir(folder, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := tree.WriteFile(folder+"/authorized_keys", []byte(strings.Join(keys, "\n")+"\n"), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// parseHostKey finds the public key in what dropbearkey printed; empty if it printed none.
func parseHostKey(output string) string {
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, "ssh-") || strings.HasPrefix(line, "ecdsa-") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// parseFingerprint finds the key's SHA256 fingerprint in what dropbearkey said; empty if it said none.
func parseFingerprint(output string) string {
	for word := range strings.FieldsSeq(output) {
		if strings.HasPrefix(word, "SHA256:") {
			return word
		}
	}
	return ""
}
