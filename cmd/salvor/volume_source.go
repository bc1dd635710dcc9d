package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"salvor/cmd/salvor/kit"
	"salvor/problem"
)

// commandSource is a program of the operator's: one JSON object on its standard input, for attach
// one on its standard output, a status other than 0 for failure.
type commandSource struct{ program string }

const maxSourceOutput = 1 << 20

func (s commandSource) attach(ctx context.Context, ask volumeAsk) (volumeTarget, error) {
	var t volumeTarget
	out, err := s.run(ctx, ask)
	if err != nil {
		return t, err
	}
	if err := json.Unmarshal(out, &t); err == nil && t.VolumeType != "" && t.VolumeID != "" {
		return t, nil
	}
	// What it made it has to take back, though nobody could read where it is.
	ask.Action, ask.Target = "detach", &t
	_, undo := s.run(context.WithoutCancel(ctx), ask)
	return t, joinUndoError(problem.Invalidf("%s printed no JSON object with volume_type, volume_id and properties", s.program), undo)
}

func (s commandSource) detach(ctx context.Context, ask volumeAsk) error {
	_, err := s.run(ctx, ask)
	return err
}

// owns leaves it to the program to know its volumes.
func (s commandSource) owns(*volumeTarget) error { return nil }

func (s commandSource) run(ctx context.Context, ask volumeAsk) ([]byte, error) {
	text, err := json.Marshal(ask)
	if err != nil {
		return nil, err
	}
	return runProgram(ctx, text, s.program, ask.Action)
}

// runProgram gives what a program printed, or its last complaint.
func runProgram(ctx context.Context, stdin []byte, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var out, complaint bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &complaint
	if err := cmd.Run(); err != nil {
		lines := strings.Split(strings.TrimSpace(complaint.String()), "\n")
		return nil, problem.Unavailablef("%s: %w: %.300s", filepath.Base(name), err, lines[len(lines)-1])
	}
	if out.Len() > maxSourceOutput {
		return nil, problem.Invalidf("%s printed more than %d bytes", filepath.Base(name), maxSourceOutput)
	}
	return out.Bytes(), nil
}

func joinUndoError(err, undo error) error {
	if undo != nil {
		return fmt.Errorf("%w; and the export could not be taken back: %w", err, undo)
	}
	return err
}

// tgtSource exports files by the Linux SCSI target daemon, with CHAP and for one initiator.
type tgtSource struct {
	backing, portal, prefix string
	control                 int
}

func (s *tgtSource) flags(f *pflag.FlagSet) {
	f.StringVar(&s.backing, "backing", "", "tgt: file or device to export")
	f.StringVar(&s.portal, "portal", "", "tgt: ADDRESS:PORT under which machines reach the daemon")
	f.StringVar(&s.prefix, "iqn-prefix", "iqn.2026-01.org.salvor", "tgt: prefix of the names of targets")
	f.IntVar(&s.control, "control-port", 0, "tgt: control port of the daemon")
}

func (s *tgtSource) admin(ctx context.Context, args ...string) ([]byte, error) {
	return runProgram(ctx, nil, "tgtadm", append([]string{"-C", strconv.Itoa(s.control), "--lld", "iscsi"}, args...)...)
}

var tgtTarget = regexp.MustCompile(`(?m)^Target (\d+): (\S+)$`)

var tgtBacking = regexp.MustCompile(`(?m)^\s+Backing store path: (/.+)$`)

// refuseExportedFile refuses a file that is the backing store of another target already. Each target has its own list of initiators, so
// two targets of a file let in two writers. shown is the daemon's list of targets.
func refuseExportedFile(shown []byte, backing string) error {
	file, err := os.Stat(backing)
	if err != nil {
		return problem.Invalidf("--backing %s: %w", backing, err)
	}
	for _, m := range tgtBacking.FindAllSubmatch(shown, -1) {
		if other, err := os.Stat(string(m[1])); err == nil && os.SameFile(file, other) {
			return problem.Conflictf("--backing %s is the backing store of another target of tgt already; find it with tgtadm --lld iscsi --mode target --op show, and detach it there first", backing)
		}
	}
	return nil
}

// targets reads the daemon's own list: number by name, and the text.
func (s *tgtSource) targets(ctx context.Context) (map[string]int, []byte, error) {
	out, err := s.admin(ctx, "--mode", "target", "--op", "show")
	if err != nil {
		return nil, nil, err
	}
	found := map[string]int{}
	for _, m := range tgtTarget.FindAllStringSubmatch(string(out), -1) {
		found[m[2]], _ = strconv.Atoi(m[1])
	}
	return found, out, nil
}

func (s *tgtSource) attach(ctx context.Context, ask volumeAsk) (volumeTarget, error) {
	iqn := ""
	for _, c := range ask.Connectors {
		if c.Type == "iqn" && iqn == "" {
			iqn = c.ConnectorID
		}
	}
	if iqn == "" {
		return volumeTarget{}, problem.Invalidf("the node has no volume connector of type iqn")
	}
	backing, err := filepath.Abs(s.backing)
	if err != nil {
		return volumeTarget{}, err
	}
	id := kit.FirstOf(ask.VolumeID, randomWord(8))
	name, secret := s.name(id), randomWord(8)
	user := tgtAccount(name)
	existing, shown, err := s.targets(ctx)
	if err == nil {
		err = refuseExportedFile(shown, backing)
	}
	if err != nil {
		return volumeTarget{}, err
	}
	if _, taken := existing[name]; taken {
		return volumeTarget{}, problem.Conflictf("tgt exports %s already", name)
	}
	number := 1
	for _, n := range existing {
		number = max(number, n+1)
	}
	tid := strconv.Itoa(number)
	for _, step := range [][]string{
		{"--mode", "target", "--op", "new", "--tid", tid, "-T", name},
		{"--mode", "logicalunit", "--op", "new", "--tid", tid, "--lun", "1", "-b", backing},
		{"--mode", "account", "--op", "new", "--user", user, "--password", secret},
		{"--mode", "account", "--op", "bind", "--tid", tid, "--user", user},
		{"--mode", "target", "--op", "bind", "--tid", tid, "-Q", iqn},
	} {
		if _, err := s.admin(ctx, step...); err != nil {
			return volumeTarget{}, joinUndoError(err, s.remove(context.WithoutCancel(ctx), name, user))
		}
	}
	return volumeTarget{
		VolumeType: "iscsi", VolumeID: id,
		Properties: map[string]any{
			"target_portal": s.portal, "target_iqn": name, "target_lun": 1,
			"auth_method": "CHAP", "auth_username": user, "auth_password": secret,
		},
	}, nil
}

func (s *tgtSource) detach(ctx context.Context, ask volumeAsk) error {
	if err := s.owns(ask.Target); err != nil {
		return err
	}
	name := s.name(ask.Target.VolumeID)
	return s.remove(ctx, name, tgtAccount(name))
}

// name is a target's, by its volume.
func (s *tgtSource) name(volumeID string) string { return s.prefix + ":" + volumeID }

// owns holds an export to the name that attach gave it: the daemon may serve others' too.
func (s *tgtSource) owns(t *volumeTarget) error {
	name, _ := t.Properties["target_iqn"].(string)
	if want := s.name(t.VolumeID); t.VolumeID == "" || name != want {
		return problem.Invalidf("its target_iqn is %.255q, not %.255q: nothing is taken away at tgt; if it was attached with another prefix, say --iqn-prefix", name, want)
	}
	return nil
}

// tgtAccount names the account of a target by the target: the API masks it, so detach could not read it there.
func tgtAccount(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "salvor-" + hex.EncodeToString(sum[:6])
}

// remove takes a target with its sessions and its account away, as far as they are there.
func (s *tgtSource) remove(ctx context.Context, name, user string) error {
	existing, _, err := s.targets(ctx)
	if err != nil {
		return err
	}
	if number, ok := existing[name]; ok {
		if _, err := s.admin(ctx, "--mode", "target", "--op", "delete", "--force", "--tid", strconv.Itoa(number)); err != nil {
			return err
		}
	}
	accounts, err := s.admin(ctx, "--mode", "account", "--op", "show")
	if err != nil || !strings.Contains(string(accounts), user) {
		return err
	}
	_, err = s.admin(ctx, "--mode", "account", "--op", "delete", "--user", user)
	return err
}

// randomWord has two characters a byte: 16 suit a CHAP secret, which is 12 to 16 bytes long.
func randomWord(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}
