package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"salvor/agent/examine"
	"salvor/agent/step"
	"salvor/diagnose"
	rules "salvor/diagnose/system"
	"salvor/problem"
	wire "salvor/wire/agent"
)

// examineTime bounds a whole examination.
const examineTime = 10 * time.Minute

// examineOrder looks at all disks of the machine and says why it does not boot.
func (a *Agent) examineOrder() step.Order {
	return step.Order{Background: true, Params: []string{"network_data", "now", "luks_keys", "luks_keys_by_uuid", "only_read"}, Run: func(ctx context.Context, p step.Params) (any, error) {
		r, err := examineRequest(p)
		defer r.ClearKeys()
		if err != nil {
			return nil, err
		}
		r.Rules, r.Log = rules.Rules(), a.log
		if err := inRamdisk(ctx, a.config.Root, "examine"); err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, examineTime)
		defer cancel()
		return examine.Run(ctx, r)
	}}
}

// inRamdisk refuses to touch disks elsewhere, and waits for the drivers of the disks.
func inRamdisk(ctx context.Context, root, what string) error {
	if err := allowedInRamdisk(root, what); err != nil {
		return err
	}
	return awaitDisks(ctx, root)
}

// examineRequest reads the params that an examination and a repair have in common. The caller clears the keys, also those that come with an error.
func examineRequest(p step.Params) (r examine.Request, err error) {
	if r.Keys, r.KeysByUUID, err = luksKeys(p); err != nil {
		return r, err
	}
	var data map[string]json.RawMessage
	if err := errors.Join(p.Get("now", &r.Now), p.Get("network_data", &data), p.Get("only_read", &r.OnlyRead)); err != nil {
		return r, err
	}
	if data != nil {
		r.NetworkData = p["network_data"]
	}
	return r, nil
}

// luksKeys takes the keys out of the params and leaves no copy there. The caller clears them, also those that come with an error.
func luksKeys(p step.Params) (keys []examine.Key, byUUID map[string][]examine.Key, err error) {
	defer clear(p["luks_keys"])
	defer clear(p["luks_keys_by_uuid"])
	if err := errors.Join(p.Get("luks_keys", &keys), p.Get("luks_keys_by_uuid", &byUUID)); err != nil {
		return keys, byUUID, err
	}
	return keys, byUUID, checkLUKSKeys(keys, byUUID)
}

// checkLUKSKeys bounds the keys in number and size.
func checkLUKSKeys(keys []examine.Key, byUUID map[string][]examine.Key) error {
	all := slices.Clone(keys)
	for _, keys := range byUUID {
		all = append(all, keys...)
	}
	if len(all) > diagnose.MaxLUKSKeys {
		return problem.Invalidf("there are %d LUKS keys; at most %d are tried", len(all), diagnose.MaxLUKSKeys)
	}
	for _, k := range all {
		if len(k) == 0 || len(k) > diagnose.MaxLUKSKey {
			return problem.Invalidf("a LUKS key has from 1 to %d bytes", diagnose.MaxLUKSKey)
		}
	}
	return nil
}

// Examination is what a person asks of the agent in the rescue system.
type Examination struct {
	// KeyFiles hold keys of LUKS containers, byte by byte: FILE, or UUID=FILE for the container of a UUID.
	KeyFiles []string
	// Limit bounds the examination; 0: 10 minutes.
	Limit time.Duration
	// OnlyRead: no program of the examined systems runs.
	OnlyRead bool
	Log      *slog.Logger
}

// Run looks at all disks of the machine that it runs in and writes what it found to out, as JSON. Without a ramdisk it is problem.Forbidden.
func (e Examination) Run(ctx context.Context, out io.Writer) error {
	r := examine.Request{Rules: rules.Rules(), Log: e.Log, OnlyRead: e.OnlyRead}
	var err error
	r.Keys, r.KeysByUUID, err = e.readKeys()
	defer r.ClearKeys()
	if err != nil {
		return err
	}
	if err := Allowed(""); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(e.Limit, examineTime))
	defer cancel()
	answer, err := examine.Run(ctx, r)
	if err != nil {
		return fmt.Errorf("examine: %w", err)
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(answer)
}

// readKeys reads the key files. The caller clears the keys, also those that come with an error.
func (e Examination) readKeys() (keys []examine.Key, byUUID map[string][]examine.Key, err error) {
	byUUID = map[string][]examine.Key{}
	for _, text := range e.KeyFiles {
		uuid, path := wire.SplitKeyFile(text)
		f, err := os.Open(path)
		if err != nil {
			return keys, byUUID, fmt.Errorf("read a LUKS key: %w", err)
		}
		key, err := io.ReadAll(io.LimitReader(f, diagnose.MaxLUKSKey+1))
		_ = f.Close()
		if err != nil {
			return keys, byUUID, fmt.Errorf("read a LUKS key: %w", err)
		}
		if uuid != "" {
			byUUID[strings.ToLower(uuid)] = append(byUUID[strings.ToLower(uuid)], key)
		} else {
			keys = append(keys, key)
		}
	}
	return keys, byUUID, checkLUKSKeys(keys, byUUID)
}
