package libvirt

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// namespace of our mark in the metadata of a definition.
const namespace = "urn:salvor:server:1"

// maxMetadata is how much of a definition's metadata is read: others write there too.
const maxMetadata = 1 << 20

// domainMetadata says in a guest's definition whose it is.
type domainMetadata struct {
	ID    string
	Epoch int64
	// Incarnation is the incarnation of the control plane's database that gave Epoch; empty: unknown.
	Incarnation string
	Name        string // the user's
	// Rescue is what it boots from in place of its disks; empty: its own disks.
	Rescue string
	// Written is the definition as salvor last wrote it, in the words of libvirt; the zero value: a former release wrote it, or a crash
	// came between.
	Written writtenDefinition
}

// writtenDefinition is a definition of ours inside its own metadata.
type writtenDefinition struct {
	// Libvirt is the version of the daemon that gave the text, as a number. Another version may word the same definition otherwise.
	Libvirt uint64
	// Text is the definition without metadata and passwords.
	Text string
}

// pack makes text short enough for metadata: gzip, then base64.
func pack(text string) (string, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := io.WriteString(w, text); err != nil {
		return "", err
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(out.Bytes()), nil
}

func unpack(packed string) (string, error) {
	r, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(packed)))
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(r, maxMetadata))
	return string(text), err
}

// markXML is its shape. Go's encoder knows no prefixes, which libvirt wants, so they are names here.
type markXML struct {
	XMLName     xml.Name   `xml:"salvor:server"`
	Namespace   string     `xml:"xmlns:salvor,attr"`
	ID          string     `xml:"id,attr"`
	Epoch       int64      `xml:"epoch,attr"`
	Incarnation string     `xml:"incarnation,attr,omitempty"`
	Name        string     `xml:"salvor:name,omitempty"`
	Rescue      *rescueXML `xml:"salvor:rescue"`
}

// writtenXML is the shape of a written definition in the metadata, beside the mark. libvirt gives the element its namespace, and replaces it alone.
type writtenXML struct {
	XMLName xml.Name `xml:"written"`
	Libvirt uint64   `xml:"libvirt,attr"`
	Packed  string   `xml:",chardata"`
}

// writtenNamespace is that of the element, writtenPrefix the prefix by which libvirt writes it.
const (
	writtenNamespace = "urn:salvor:written:1"
	writtenPrefix    = "salvor-written"
)

func (w writtenDefinition) xml() (string, error) {
	packed, err := pack(w.Text)
	if err != nil {
		return "", err
	}
	text, err := xml.Marshal(writtenXML{Libvirt: w.Libvirt, Packed: packed})
	return string(text), err
}

type rescueXML struct {
	Source string `xml:"source,attr"`
}

func (m domainMetadata) xml() (string, error) {
	doc := markXML{Namespace: namespace, ID: m.ID, Epoch: m.Epoch, Incarnation: m.Incarnation, Name: m.Name}
	if m.Rescue != "" {
		doc.Rescue = &rescueXML{Source: m.Rescue}
	}
	text, err := xml.Marshal(doc)
	if err != nil {
		return "", fmt.Errorf("mark of server %s: %w", m.ID, err)
	}
	return string(text), nil
}

// parseMark finds our mark in the inside of a metadata element; false: there is none, or none that we wrote.
func parseMark(metadata string) (domainMetadata, bool) {
	if len(metadata) > maxMetadata || !strings.Contains(metadata, namespace) {
		return domainMetadata{}, false
	}
	in := xml.NewDecoder(io.MultiReader(strings.NewReader("<metadata>"), strings.NewReader(metadata), strings.NewReader("</metadata>")))
	var m domainMetadata
	var written writtenDefinition
	depth, ours := 0, false
	for {
		token, err := in.Token()
		if err != nil { // the end too
			m.Written = written
			return m, ours
		}
		switch t := token.(type) {
		case xml.StartElement:
			switch {
			case depth == 1 && !ours && t.Name == (xml.Name{Space: namespace, Local: "server"}):
				if m, err = readMark(in, t); err != nil {
					return domainMetadata{}, false
				}
				ours = true
				continue
			case depth == 1 && t.Name == (xml.Name{Space: writtenNamespace, Local: "written"}):
				written = readWritten(in, t)
				continue
			}
			depth++
		case xml.EndElement:
			depth--
		}
	}
}

// readWritten reads a written definition; zero: it is not understood.
func readWritten(in *xml.Decoder, start xml.StartElement) writtenDefinition {
	var doc struct {
		Libvirt uint64 `xml:"libvirt,attr"`
		Packed  string `xml:",chardata"`
	}
	if err := in.DecodeElement(&doc, &start); err != nil {
		return writtenDefinition{}
	}
	text, err := unpack(strings.TrimSpace(doc.Packed))
	if err != nil {
		return writtenDefinition{}
	}
	return writtenDefinition{Libvirt: doc.Libvirt, Text: text}
}

func readMark(in *xml.Decoder, start xml.StartElement) (domainMetadata, error) {
	var doc struct {
		ID          string `xml:"id,attr"`
		Epoch       string `xml:"epoch,attr"`
		Incarnation string `xml:"incarnation,attr"`
		Name        string `xml:"urn:salvor:server:1 name"`
		Rescue      []struct {
			Source string `xml:"source,attr"`
		} `xml:"urn:salvor:server:1 rescue"`
	}
	if err := in.DecodeElement(&doc, &start); err != nil {
		return domainMetadata{}, err
	}
	id, err := uuid.Parse(doc.ID)
	if err != nil {
		return domainMetadata{}, err
	}
	epoch, err := strconv.ParseInt(doc.Epoch, 10, 64)
	if err != nil {
		return domainMetadata{}, err
	}
	m := domainMetadata{ID: id.String(), Epoch: epoch, Incarnation: doc.Incarnation, Name: doc.Name}
	switch len(doc.Rescue) {
	case 0:
	case 1:
		m.Rescue = doc.Rescue[0].Source
	default:
		return domainMetadata{}, errors.New("more than one rescue")
	}
	return m, nil
}

// cleanName takes out of a user's text what XML cannot hold.
func cleanName(name string) string {
	var out bytes.Buffer
	for _, r := range name {
		if r == '\t' || r >= ' ' && r != 0xFFFD && r != 0xFFFE && r != 0xFFFF {
			out.WriteRune(r)
		}
	}
	return out.String()
}
