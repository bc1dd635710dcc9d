package netboot

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"salvor/boot/media"
	"salvor/metal"
	"salvor/problem"
)

// firstDrive is the number that BIOS gives the disk it boots.
const firstDrive = 0x80

// maxRoads bounds what a report is read of.
const maxRoads = 8

// sanScript renders the iPXE script that attaches iSCSI volumes and starts the root's system. What
// fails is told to us (see serveFailed), then the script is fetched anew, because the targets or what
// is wrong with them may have changed. Names and secrets go in as hexadecimal bytes: nothing
// in them can end a line, expand or join commands.
func sanScript(v metal.VolumePlan) (string, error) {
	if v.Root == nil || v.Root.Type != metal.ISCSI {
		return "", problem.Invalidf("boot plan: the node has no iSCSI volume with boot index 0 any more")
	}
	if !isWord(v.Initiator) {
		return "", problem.Invalidf("boot plan: the initiator's name holds a character that is not allowed in a boot script")
	}
	lines := []string{"#!ipxe", "set initiator-iqn " + v.Initiator, "clear why"}
	for i, other := range v.Others {
		uris, err := sanURIs(other)
		if err != nil {
			return "", err
		}
		drive := fmt.Sprintf("--drive 0x%x ", firstDrive+1+i)
		// One of a former try may still be hooked.
		lines = append(lines, "sanunhook "+drive+"||", "set volume "+strconv.Itoa(other.BootIndex))
		lines = append(append(lines, formatCHAPSettings(other)...), "sanhook "+drive+strings.Join(uris, " ")+" || set why ${errno}", "isset ${why} && goto failed ||")
	}
	uris, err := sanURIs(*v.Root)
	if err != nil {
		return "", err
	}
	drive := fmt.Sprintf("--drive 0x%x ", firstDrive)
	lines = append(append(lines, "set volume 0"), formatCHAPSettings(*v.Root)...)
	lines = append(lines, "sanboot "+drive+strings.Join(uris, " ")+" || set why ${errno}")
	report := metal.BootFailed + "?volume=${volume}&errno=${why}"
	if len(uris) > 1 {
		// Of several paths only one's failure is known so far: each is tried by itself.
		for i, uri := range uris {
			lines = append(lines, fmt.Sprintf("clear p%d", i+1), "sanunhook "+drive+"||", fmt.Sprintf("sanhook %s%s || set p%d ${errno}", drive, uri, i+1))
			report += fmt.Sprintf("&p%d=${p%d}", i+1, i+1)
		}
		lines = append(lines, "sanunhook "+drive+"||")
	}
	lines = append(lines,
		":failed",
		"imgfetch --name report "+report+" || imgfree",
		"imgfree",
		"sleep 5",
		"chain --replace --autofree "+metal.BootScript+" || exit 1",
		"")
	return strings.Join(lines, "\n"), nil
}

// isWord looks a second time at what plans are held to already: that a name is one word to iPXE, which expands
// nothing in it.
func isWord(s string) bool {
	return s != "" && !strings.ContainsAny(s, " \t$&|{}") && media.CheckParams(s) == nil
}

// formatCHAPSettings set CHAP for the drive that is attached next, or take away what was set for the one before.
func formatCHAPSettings(v metal.Volume) []string {
	set := func(name, value string) string {
		if value == "" {
			return "clear " + name
		}
		return "set " + name + ":hex " + hexBytes(value)
	}
	return []string{
		set("username", v.Login.Username), set("password", v.Login.Password.Reveal()),
		set("reverse-username", v.Mutual.Username), set("reverse-password", v.Mutual.Password.Reveal()),
	}
}

func hexBytes(s string) string {
	out := make([]string, len(s))
	for i := range len(s) {
		out[i] = hex.EncodeToString([]byte{s[i]})
	}
	return strings.Join(out, ":")
}

// sanURIs names every path to a volume; iPXE takes the first that answers and keeps the others.
func sanURIs(v metal.Volume) ([]string, error) {
	var out []string
	for _, p := range v.Paths {
		host := p.Host
		if a, err := netip.ParseAddr(host); err == nil && a.Is6() {
			host = "[" + host + "]"
		}
		uri := fmt.Sprintf("iscsi:%s::%d:%s:%s", host, p.Port, lunText(p.LUN), p.IQN)
		if !isWord(uri) {
			return nil, problem.Invalidf("boot plan: volume target %s holds a character that is not allowed in a boot script", v.TargetID)
		}
		out = append(out, uri)
	}
	if len(out) == 0 {
		return nil, problem.Invalidf("boot plan: volume target %s has no portal", v.TargetID)
	}
	return out, nil
}

// lunText is a LUN as iPXE reads it: hexadecimal, of the two first bytes of SCSI's eight.
func lunText(lun int) string {
	if lun > 0xff {
		lun |= 0x4000 // the flat form
	}
	return strconv.FormatInt(int64(lun), 16)
}

// planHasFile tells whether a plan has something under this name: one that leads to volumes has a
// script, which may say that it failed, and no file.
func planHasFile(plan *metal.BootPlan, name string) bool {
	if plan.Volumes {
		return name == metal.BootScript || name == metal.BootFailed
	}
	switch {
	case name == metal.BootConfigDrive:
		return plan.ConfigDrive
	case plan.ISO != "":
		return name == metal.BootISO || name == metal.BootImage && plan.Image != "" // the agent in a deploy_iso fetches the image
	}
	return name != metal.BootFailed
}

// volumeScript renders the script from the targets as they are now.
func (s *Server) volumeScript(ctx context.Context, n *metal.Node) (string, error) {
	if s.cfg.Volumes == nil {
		return "", errNoPlan
	}
	v, err := s.cfg.Volumes(ctx, n)
	if err == nil {
		var text string
		if text, err = sanScript(v); err == nil {
			return text, nil
		}
	}
	if problem.Is(err, problem.Invalid) {
		s.failed(ctx, n, err.Error())
	}
	return "", err
}

// reportPause keeps a machine that tries again and again from filling its timeline.
const reportPause = 2 * time.Second

// serveFailed takes a machine's word that a volume could not be attached or started from.
func (s *Server) serveFailed(w http.ResponseWriter, r *http.Request, n *metal.Node) {
	q := r.URL.Query()
	index, err := strconv.Atoi(q.Get("volume"))
	if err != nil || index < 0 {
		plainError(w, http.StatusBadRequest)
		return
	}
	why := sanTrouble(q.Get("errno"))
	// With several portals each is told of.
	for i := 1; q.Has(fmt.Sprintf("p%d", i)) && i <= maxRoads; i++ {
		if i == 1 {
			why = ""
		}
		word := "answers now"
		if p := q.Get(fmt.Sprintf("p%d", i)); p != "" {
			word = sanTrouble(p)
		}
		why = strings.TrimPrefix(fmt.Sprintf("%s; portal %d: %s", why, i, word), "; ")
	}
	s.failed(r.Context(), n, fmt.Sprintf("the volume with boot index %d: %s", index, why))
	w.Header().Set("Content-Type", "text/plain; charset=us-ascii")
	_, _ = w.Write([]byte("noted\n"))
}

func (s *Server) failed(ctx context.Context, n *metal.Node, why string) {
	if s.cfg.Failed != nil && s.reports.fresh(seenKey{n.ID, n.BootNumber, ""}) {
		s.cfg.Failed(context.WithoutCancel(ctx), n, why)
	}
}

// troubles tell iPXE's error numbers, by their highest byte, in the words of who can mend them.
var troubles = map[byte]string{
	0x02: "the target did not prove itself by mutual CHAP: check auth_mutual_username and auth_mutual_password",
	0x0f: "the portal refuses the connection",
	0x1d: "the disk cannot be read: check target_lun",
	0x28: "there is no road to the portal's network",
	0x2c: "the portal knows no such target for this node: check target_iqn, and that the storage lets the connector's iqn in",
	0x3e: "the name of the portal cannot be resolved",
	0x41: "the target refuses the login: check auth_username and auth_password",
	0x43: "the target does not let the node in as it asks: check whether it wants CHAP",
	0x4c: "the portal does not answer",
}

func sanTrouble(errno string) string {
	code, err := strconv.ParseUint(errno, 0, 32)
	if err != nil {
		code = 0
	}
	text, ok := troubles[byte(code>>24)]
	if !ok {
		text = "it cannot be reached or started from"
	}
	return fmt.Sprintf("%s (https://ipxe.org/%08x)", text, code)
}
