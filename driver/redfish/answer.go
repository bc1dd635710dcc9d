package redfish

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// bmcMessage is a Message object of a Redfish error (DSP0266, "Extended error response").
type bmcMessage struct {
	ID                string `json:"MessageId"`
	Message           string
	MessageArgs       []any // strings; some BMCs send numbers
	RelatedProperties []any
}

// bmcRefusal is an answer that is no success.
type bmcRefusal struct {
	status   int
	messages []bmcMessage
	text     string // the most telling text of the answer, as the BMC wrote it
}

// Error has no text of the BMC, which may repeat a secret: bmcSession.fault quotes and masks it.
func (r *bmcRefusal) Error() string { return fmt.Sprint(r.status) }

// newRefusal reads the body of an answer with an error. BMCs nest the messages in "error" or not, and send one without its list.
func newRefusal(status int, body []byte) *bmcRefusal {
	type fields struct {
		Message  string          `json:"message"`
		Messages json.RawMessage `json:"@Message.ExtendedInfo"`
	}
	var doc struct {
		Error fields `json:"error"`
		fields
	}
	r := &bmcRefusal{status: status}
	if json.Unmarshal(body, &doc) != nil {
		r.text = strings.TrimSpace(string(body))
		return r
	}
	for _, list := range []json.RawMessage{doc.Error.Messages, doc.Messages} {
		var many []bmcMessage
		var one bmcMessage
		if json.Unmarshal(list, &many) == nil {
			r.messages = append(r.messages, many...)
		} else if json.Unmarshal(list, &one) == nil {
			r.messages = append(r.messages, one)
		}
	}
	var texts []string
	for _, m := range r.messages {
		if m.Message != "" {
			texts = append(texts, m.Message)
		}
	}
	r.text = strings.Join(texts, " ")
	for _, text := range []string{doc.Error.Message, doc.Message, strings.TrimSpace(string(body))} {
		if r.text == "" {
			r.text = text
		}
	}
	return r
}

// messageKind is what a BMC means by a message, whoever made it.
type messageKind int

const (
	messageOther         messageKind = iota
	messageNotNow                    // the same request may succeed later
	messageElsewhere                 // another resource takes the change
	messageMissing                   // the request lacks a member
	messageValueRefused              // a member has a value that the BMC does not take
	messageMemberRefused             // the BMC does not take the member
	messageUnreachable               // the BMC cannot get at a URL that it was given; it may well get there later
)

// messageKinds are the messages by the last part of their ids, which versions of the registries leave alone. The Base registry
// (DSP8011) defines them, unless something else is said.
var messageKinds = map[string]messageKind{
	"ServiceTemporarilyUnavailable": messageNotNow,
	"ServiceInUnknownState":         messageNotNow,
	"ServiceShuttingDown":           messageNotNow,
	"ResourceInUse":                 messageNotNow,
	"ResourceInStandby":             messageNotNow,
	"ResourceExhaustion":            messageNotNow,
	"SessionLimitExceeded":          messageNotNow,
	"OperationTimeout":              messageNotNow,
	// iLO answers so in the seconds after a power off: sushy, release note retry-ilo-not-ready-error.
	"InvalidOperationForSystemState": messageNotNow,
	// iLO, while the machine runs its power-on self-test: Ironic, bug 2136275.
	"UnableToModifyDuringSystemPOST": messageNotNow,

	// AMI MegaRAC takes changes at the settings resource only: DMTF/Redfish-Tacklebox, issues 111 and 144.
	"OperationSupportedInFutureStateURI": messageElsewhere,

	"PropertyMissing":                  messageMissing,
	"ActionParameterMissing":           messageMissing,
	"CreateFailedMissingReqProperties": messageMissing,

	"PropertyValueNotInList":          messageValueRefused,
	"PropertyValueIncorrect":          messageValueRefused,
	"PropertyValueFormatError":        messageValueRefused,
	"PropertyValueTypeError":          messageValueRefused,
	"PropertyValueConflict":           messageValueRefused,
	"PropertyValueError":              messageValueRefused,
	"ActionParameterValueNotInList":   messageValueRefused,
	"ActionParameterValueFormatError": messageValueRefused,
	"ActionParameterValueTypeError":   messageValueRefused,
	"ActionParameterValueError":       messageValueRefused,
	"ActionParameterValueConflict":    messageValueRefused,

	"PropertyUnknown":             messageMemberRefused,
	"PropertyNotWritable":         messageMemberRefused,
	"PropertyNotUpdated":          messageMemberRefused,
	"ActionParameterUnknown":      messageMemberRefused,
	"ActionParameterNotSupported": messageMemberRefused,

	"CouldNotEstablishConnection":  messageUnreachable,
	"ResourceAtUriUnauthorized":    messageUnreachable,
	"ResourceAtUriInUnknownFormat": messageUnreachable,
}

func (m bmcMessage) kind() messageKind {
	return messageKinds[m.ID[strings.LastIndex(m.ID, ".")+1:]]
}

// has tells whether one of the messages is of a kind.
func (r *bmcRefusal) has(kind messageKind) bool {
	return slices.ContainsFunc(r.messages, func(m bmcMessage) bool { return m.kind() == kind })
}

// isTemporary tells whether the same request may succeed later.
func (r *bmcRefusal) isTemporary() bool {
	switch r.status {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusConflict, http.StatusBadGateway, http.StatusGatewayTimeout:
		return true
	}
	return r.has(messageNotNow)
}

// isAbout tells whether a message of a kind is about a member of the request, by its arguments, its related properties, or else its text.
func (r *bmcRefusal) isAbout(kind messageKind, member string) bool {
	for _, m := range r.messages {
		if m.kind() != kind {
			continue
		}
		for _, arg := range slices.Concat(m.MessageArgs, m.RelatedProperties) {
			if text, ok := arg.(string); ok && lastPart(text) == member {
				return true
			}
		}
		if len(m.MessageArgs)+len(m.RelatedProperties) == 0 && hasWord(m.Message, member) {
			return true
		}
	}
	return false
}

// lastPart takes the name out of "#/Boot/BootSourceOverrideMode" and "Boot.BootSourceOverrideMode".
func lastPart(pointer string) string { return pointer[strings.LastIndexAny(pointer, "/.#")+1:] }

func isLetter(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_'
}

// isOfBody tells whether the BMC may take the same request with another body.
func (r *bmcRefusal) isOfBody() bool {
	switch {
	case r.status != http.StatusBadRequest && r.status != http.StatusUnprocessableEntity:
		return false
	case r.isTemporary(), r.lacksLicence():
		return false
	}
	return !r.has(messageElsewhere) && !r.has(messageUnreachable)
}

// licenceID are the ids of messages about licences: iLO.2.14.LicenseKeyRequired, SMC.1.0.OemLicenseNotPassed, IDRAC.2.8.LIC501.
var licenceID = regexp.MustCompile(`(?i)licen[cs]e|\.LIC[0-9]+$`)

// lacksLicence tells by the ids of its messages whether the BMC refused because it lacks a licence.
func (r *bmcRefusal) lacksLicence() bool {
	return slices.ContainsFunc(r.messages, func(m bmcMessage) bool { return licenceID.MatchString(m.ID) })
}
