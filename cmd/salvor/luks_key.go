package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"salvor/cmd/salvor/kit"
	"salvor/diagnose"
	"salvor/metal"
	"salvor/wire/agent"
)

// diagnosisBody asks for a diagnosis. A value of this type holds keys in the open: it is made last and never printed.
type diagnosisBody struct {
	metal.DiagnoseArgs
	LUKSKeys []luksKeyBody `json:"luks_keys,omitempty"`
	Console  string        `json:"console,omitempty"`
}

// luksKeyBody is one key; its JSON is base64.
type luksKeyBody struct {
	UUID string `json:"uuid,omitempty"`
	Key  []byte `json:"key"`
}

// luksKeyFlag adds the flag of commands that have the disks of a node read.
func luksKeyFlag(cmd *cobra.Command, keyFiles *[]string) {
	cmd.Flags().StringArrayVar(keyFiles, "luks-key", nil, "open LUKS containers with the key in this file, or the one of a UUID with UUID=FILE; -: a passphrase from standard input; may be repeated")
}

// readLUKSKeys reads the keys that --luks-key names: FILE, UUID=FILE, or - in place of FILE for a passphrase, once.
func readLUKSKeys(in io.Reader, out io.Writer, names []string) ([]luksKeyBody, error) {
	var keys []luksKeyBody
	asked := false
	for _, name := range names {
		uuid, path := agent.SplitKeyFile(name)
		k := luksKeyBody{UUID: uuid}
		var err error
		switch {
		case path == "-" && asked:
			err = fmt.Errorf("standard input gives one passphrase only; put the others into files")
		case path == "-":
			asked = true
			k.Key, err = readPassphrase(in, out)
		default:
			k.Key, err = readKeyFile(path)
		}
		switch {
		case err == nil && len(k.Key) == 0:
			err = errors.New("the key is empty")
		case err == nil && len(k.Key) > diagnose.MaxLUKSKey:
			err = fmt.Errorf("it has more than %d bytes, which is the most that a key may have", diagnose.MaxLUKSKey)
		}
		if err != nil {
			return nil, fmt.Errorf("--luks-key %s: %w", name, err)
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// readKeyFile reads one byte more than a key may have, so that the caller sees one that is too large.
func readKeyFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, diagnose.MaxLUKSKey+1))
}

// readPassphrase asks a terminal, or reads the first line of anything else.
func readPassphrase(in io.Reader, out io.Writer) ([]byte, error) {
	if f, ok := in.(*os.File); ok && kit.TerminalWidth(f) > 0 {
		text, err := kit.PromptPassword(f, out, "LUKS passphrase: ")
		return []byte(text), err
	}
	line, err := bufio.NewReader(io.LimitReader(in, diagnose.MaxLUKSKey+2)).ReadString('\n')
	if err == io.EOF {
		err = nil
	}
	return []byte(strings.TrimSuffix(line, "\n")), err
}
