package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
	"salvor/secret"
	"salvor/wire/ironic"
)

// parseKeyValues reads key=value arguments. A value that is JSON is taken as such, but one under
// the key of a secret always as text: a password of digits is no number.
func parseKeyValues(cmd *cobra.Command, flag string, args []string) (client.Record, error) {
	texts, err := textPairs(cmd, flag, args)
	if err != nil {
		return nil, err
	}
	out := client.Record{}
	for key, value := range texts {
		out[key] = value
		var parsed any
		if !secret.IsKey(key) && json.Unmarshal([]byte(value), &parsed) == nil {
			out[key] = json.RawMessage(value)
		}
	}
	return out, nil
}

// textPairs are pairs whose values are text whatever they look like.
func textPairs(cmd *cobra.Command, flag string, args []string) (map[string]string, error) {
	out := map[string]string{}
	for _, a := range args {
		key, value, ok := strings.Cut(a, "=")
		if !ok || key == "" {
			return nil, kit.UsageErrorf(cmd, "--%s %q: want KEY=VALUE", flag, key)
		}
		out[key] = value
	}
	return out, nil
}

// readJSONArgument reads an argument that is JSON itself, the name of a file with JSON, or - for standard input.
func readJSONArgument(cmd *cobra.Command, flag, value string) (json.RawMessage, error) {
	text := []byte(strings.TrimSpace(value))
	if len(text) == 0 || !strings.ContainsRune("{[", rune(text[0])) {
		read, err := kit.ReadArgument(cmd.InOrStdin(), value, kit.MaxArgumentFile)
		if err != nil {
			return nil, kit.UsageErrorf(cmd, "--%s: %w", flag, err)
		}
		text = read
	}
	if !json.Valid(text) {
		return nil, kit.UsageErrorf(cmd, "--%s: not JSON", flag)
	}
	return text, nil
}

// patchBuilder collects the operations of a set or unset command.
type patchBuilder struct {
	operations []ironic.PatchOperation
	err        error
}

func (p *patchBuilder) set(path string, value any) {
	op, err := client.Set(path, value)
	if err != nil && p.err == nil {
		p.err = fmt.Errorf("%s: %w", path, err)
	}
	p.operations = append(p.operations, op)
}

func (p *patchBuilder) remove(path string) {
	p.operations = append(p.operations, client.Remove(path))
}

// done gives the patch, or says that there is none.
func (p *patchBuilder) done(cmd *cobra.Command) ([]ironic.PatchOperation, error) {
	if p.err != nil {
		return nil, p.err
	}
	if len(p.operations) == 0 {
		return nil, kit.UsageErrorf(cmd, "nothing to change")
	}
	return p.operations, nil
}
