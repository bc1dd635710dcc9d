package efi

import (
	"bytes"
	"cmp"
	"compress/flate"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"salvor/diagnose"
)

const (
	// crashVendor is LINUX_EFI_CRASH_GUID of Linux's efi-pstore.
	crashVendor = "-cfc8fc79-be2e-4ddc-97f0-9f98bfe298a0"
	// maxCrashes bounds how many crashes are read, maxCrashParts of how many variables each, maxCrashText the text of one in bytes.
	maxCrashes    = 8
	maxCrashParts = 64
	maxCrashText  = 64 << 10
)

// crashPart is a variable with a piece of a kernel's log. Part 1 is the end of the log.
type crashPart struct {
	file       string
	part       uint64
	at, count  int64
	compressed bool
}

// crashes reads what kernels stored when they died. Linux names such a variable dump-type0-PART-COUNT-SECONDS-C, with a D for C where the text
// is not compressed.
func (v efivarsDir) crashes() []diagnose.CrashRecord {
	files, err := os.ReadDir(string(v))
	if err != nil {
		return nil
	}
	type crashID struct{ at, count int64 }
	parts := map[crashID][]crashPart{}
	for _, f := range files {
		if p, ok := parseCrashName(f.Name()); ok {
			id := crashID{p.at, p.count}
			parts[id] = append(parts[id], p)
		}
	}
	var ids []crashID
	for id := range parts {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b crashID) int { return cmp.Or(cmp.Compare(b.at, a.at), cmp.Compare(b.count, a.count)) })
	var out []diagnose.CrashRecord
	for _, id := range ids[:min(len(ids), maxCrashes)] {
		list := parts[id]
		slices.SortFunc(list, func(a, b crashPart) int { return cmp.Compare(b.part, a.part) })
		var text strings.Builder
		for _, p := range list[max(0, len(list)-maxCrashParts):] {
			text.WriteString(v.crashText(p))
		}
		if end := text.String(); end != "" {
			out = append(out, diagnose.CrashRecord{At: time.Unix(id.at, 0).UTC(), Text: end[max(0, len(end)-maxCrashText):]})
		}
	}
	return out
}

func parseCrashName(file string) (p crashPart, ok bool) {
	name, ok := strings.CutSuffix(file, crashVendor)
	if !ok {
		return p, false
	}
	fields := strings.Split(name, "-")
	if len(fields) < 5 || fields[0] != "dump" || fields[1] != "type0" { // type 0 is PSTORE_TYPE_DMESG
		return p, false
	}
	part, errPart := strconv.ParseUint(fields[2], 10, 32)
	count, errCount := strconv.ParseInt(fields[3], 10, 32)
	at, errAt := strconv.ParseInt(fields[4], 10, 64)
	return crashPart{file: file, part: part, at: at, count: count, compressed: len(fields) > 5 && fields[5] == "C"}, errPart == nil && errCount == nil && errAt == nil
}

// crashText is the text of one variable. pstore writes a head such as "Panic#1 Part1" before each.
func (v efivarsDir) crashText(p crashPart) string {
	b, err := v.readFile(p.file)
	if err != nil {
		return ""
	}
	if p.compressed {
		// What was read before damage is text all the same.
		b, _ = io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(b)), maxCrashText))
	}
	return strings.TrimRight(string(b), "\x00")
}
