// Package refusal reads what a BMC says when it does not do what it was asked: the words for a person, and what they mean for the next request.
package refusal

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"salvor/driver"
	"salvor/wire/loose"
)

// Statuses of HTTP that say something about the next request.
const (
	badRequest     = 400
	conflict       = 409
	unprocessable  = 422
	tooMany        = 429
	internalError  = 500
	badGateway     = 502
	unavailable    = 503
	gatewayTimeout = 504
)

// Message is a Message object of a Redfish error (DSP0266, "Extended error response"), or of a task.
type Message struct {
	ID                string `json:"MessageId"`
	Message           string
	MessageArgs       []string
	RelatedProperties []string
	Severity          string
	Resolution        string
}

// Refusal is an answer that is no success.
type Refusal struct {
	Status   int
	Messages []Message
	Passing  bool   // the status stands for something that heals by itself
	Text     string // the most telling text of the answer, as the BMC wrote it
}

// Error has no text of the BMC, which may repeat a secret: Conversation.fault quotes and masks it.
func (r *Refusal) Error() string { return fmt.Sprint(r.Status) }

// errorBody is the body of an answer with an error. BMCs nest the messages in "error" or not, and send one without its list.
type errorBody struct {
	Error struct {
		Message  string    `json:"message"`
		Messages []Message `json:"@Message.ExtendedInfo"`
	} `json:"error"`
	Message  string    `json:"message"`
	Messages []Message `json:"@Message.ExtendedInfo"`
}

func (b errorBody) messages() []Message {
	all := slices.Concat(b.Error.Messages, b.Messages)
	return all[:min(len(all), maxMessages)]
}

// maxMessages bounds how many messages of an answer are looked at.
const maxMessages = 32

// New reads the body of an answer with an error.
func New(status int, body []byte) *Refusal {
	var doc errorBody
	r := &Refusal{Status: status}
	if _, err := loose.Decode(body, &doc); err != nil {
		r.Text = PlainPage(body)
		return r
	}
	r.Messages = doc.messages()
	r.Text = r.Words()
	for _, text := range []string{doc.Error.Message, doc.Message, strings.TrimSpace(string(body))} {
		if r.Text == "" {
			r.Text = text
		}
	}
	return r
}

// tags are those of a page of HTML.
var tags = regexp.MustCompile(`(?s)<(script|style).*?</(script|style)>|<[^>]*>`)

// PlainPage is a page in the place of an answer without its tags.
func PlainPage(body []byte) string {
	return strings.Join(strings.Fields(string(tags.ReplaceAll(body, []byte(" ")))), " ")
}

// Within finds the refusal in an answer whose status says that the request succeeded; nil: there is none. isSure tells whether the request was
// surely refused: of a message that nobody knows, only a look at the machine tells.
func Within(body []byte, isRead bool) (r *Refusal, isSure bool) {
	if !bytes.Contains(body, []byte(`"error"`)) && !bytes.Contains(body, []byte(`ExtendedInfo"`)) {
		return nil, false
	}
	var top map[string]any
	if _, err := loose.Decode(body, &top); err != nil || isRead && (top["@odata.id"] != nil || top["error"] == nil) {
		return nil, false
	}
	r = New(internalError, body)
	isBad := false
	for _, m := range r.Messages {
		isUntold := top["error"] != nil && m.Severity == "" && m.ID != "" && !goodNames.MatchString(m.name())
		isCritical := strings.EqualFold(m.Severity, "critical")
		isBad = isBad || isCritical || isUntold
		isSure = isSure || isCritical || isUntold && (isRead || m.kind() != Other || ownWords[m.name()] != "")
	}
	if !isBad {
		return nil, false
	}
	return r, isSure
}

// goodNames are names of messages by which BMCs say in an error that a request succeeded, as HPE's do, or what remains to be done.
var goodNames = regexp.MustCompile(`(?i)success|complete|created|added|modified|changed|updated|removed|deleted|required|progress|pending|accept|start|enabled|disabled|reset|none|^ok$`)

// isPlaceholder tells a message that only says where the message is.
func isPlaceholder(text string) bool {
	return strings.Contains(text, "@Message.ExtendedInfo") || strings.Contains(strings.ToLower(text), "see extendedinfo")
}

// Words are the messages as one text: the BMC's own words, or else salvor's for the message's id with its arguments.
func (r *Refusal) Words() string {
	var all []string
	for _, m := range r.Messages[:min(len(r.Messages), maxMessages)] {
		if text := m.text(); text != "" && !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return strings.Join(all, " ")
}

func (m Message) text() string {
	if text := strings.TrimSpace(m.Message); strings.ContainsFunc(text, unicode.IsLetter) && !isPlaceholder(text) {
		return text
	}
	name := m.name()
	if !strings.ContainsFunc(name, unicode.IsLetter) {
		return ""
	}
	args := strings.Join(m.MessageArgs, ", ")
	if args != "" {
		args = " (" + args + ")"
	}
	if words := ownWords[name]; words != "" {
		return words + args + " [" + name + "]"
	}
	return name + args
}

// name is the last part of the message's id, which versions of the registries leave alone.
func (m Message) name() string { return m.ID[strings.LastIndexAny(m.ID, ".")+1:] }

// ownWords are what messages mean that some BMCs, all of HPE among them, send by id alone: ids of the Base registry (DSP8011) and of
// iLO's own.
var ownWords = map[string]string{
	"InsufficientPrivilege":                "this user lacks the privilege",
	"NoValidSession":                       "there is no valid session",
	"UnauthorizedLoginAttempt":             "the login is not accepted",
	"AccountNotModified":                   "the account is not changed",
	"AccessDenied":                         "access is denied",
	"ResourceMissingAtURI":                 "there is no such resource",
	"ResourceNotFound":                     "there is no such resource",
	"ResourceInUse":                        "the resource is in use",
	"ResourceInStandby":                    "the resource is in standby",
	"ResourceExhaustion":                   "the BMC lacks resources",
	"ResourceNotReadyRetry":                "the resource is not ready; try again",
	"ResourceNotReady":                     "the resource is not ready",
	"ServiceTemporarilyUnavailable":        "the service is not available for the moment",
	"ServiceShuttingDown":                  "the service is shutting down",
	"SessionLimitExceeded":                 "there are too many sessions",
	"InternalError":                        "the BMC met an internal error",
	"GeneralError":                         "the BMC met an error that it does not name",
	"MalformedJSON":                        "the BMC cannot read the request",
	"ActionNotSupported":                   "the action is not supported",
	"ActionParameterMissing":               "a parameter is missing",
	"ActionParameterNotSupported":          "a parameter is not supported",
	"ActionParameterUnknown":               "a parameter is not known",
	"ActionParameterValueNotInList":        "a parameter has a value that is not in the list",
	"ActionParameterValueFormatError":      "a parameter has a value of a wrong format",
	"ActionParameterValueTypeError":        "a parameter has a value of a wrong type",
	"PropertyMissing":                      "a property is missing",
	"PropertyNotWritable":                  "a property cannot be written",
	"PropertyNotWritableOrUnknown":         "a property cannot be written or is not known",
	"PropertyUnknown":                      "a property is not known",
	"PropertyValueNotInList":               "a property has a value that is not in the list",
	"PropertyValueFormatError":             "a property has a value of a wrong format",
	"PropertyValueTypeError":               "a property has a value of a wrong type",
	"PropertyValueConflict":                "two properties contradict each other",
	"OperationFailed":                      "the operation failed",
	"OperationTimeout":                     "the operation took too long",
	"InvalidOperationForSystemState":       "the machine's power state does not allow it now",
	"InvalidOperationForAutoPowerOnState":  "the machine is about to switch itself on",
	"UnableToModifyDuringSystemPOST":       "the machine is in its power-on self-test",
	"ServerIsPoweredOff":                   "the machine is off",
	"MaxVirtualMediaConnectionEstablished": "the virtual drive is in use already",
	"VirtualMediaIsDisabled":               "virtual media are switched off",
	"LicenseKeyRequired":                   "a licence is needed",
	"NotSupported":                         "the BMC does not support it",
	"ResetInProgress":                      "a reset is under way",
	"DeviceResetRequired":                  "a device must be reset first",
	"PowerValueNotAvailable":               "the BMC does not know the power",
}

// Kind is what a BMC means by a message, whoever made it.
type Kind int

const (
	Other         Kind = iota
	NotNow             // the same request may succeed later
	Elsewhere          // another resource takes the change
	Lacks              // the request lacks a member
	ValueRefused       // a member has a value that the BMC does not take
	MemberRefused      // the BMC does not take the member
	Unreachable        // the BMC cannot get at a URL that it was given; it may well get there later
)

// kinds are the messages by the last part of their ids, which versions of the registries leave alone. The Base registry
// (DSP8011) defines them, unless something else is said.
var kinds = map[string]Kind{
	"ServiceTemporarilyUnavailable": NotNow,
	"ServiceInUnknownState":         NotNow,
	"ServiceShuttingDown":           NotNow,
	"ResourceInUse":                 NotNow,
	"ResourceInStandby":             NotNow,
	"ResourceExhaustion":            NotNow,
	"SessionLimitExceeded":          NotNow,
	"OperationTimeout":              NotNow,
	"ResourceNotReady":              NotNow,
	"ResetInProgress":               NotNow,
	// iLO shows its storage only some time after the machine starts: check_redfish, issue 170.
	"ResourceNotReadyRetry": NotNow,
	// iLO answers so in the seconds after a power off: sushy, release note retry-ilo-not-ready-error.
	"InvalidOperationForSystemState": NotNow,
	// iLO, while the machine runs its power-on self-test: Ironic, bug 2136275.
	"UnableToModifyDuringSystemPOST": NotNow,

	// AMI MegaRAC takes changes at the settings resource only: DMTF/Redfish-Tacklebox, issues 111 and 144.
	"OperationSupportedInFutureStateURI": Elsewhere,

	"PropertyMissing":                  Lacks,
	"ActionParameterMissing":           Lacks,
	"CreateFailedMissingReqProperties": Lacks,

	"PropertyValueNotInList":          ValueRefused,
	"PropertyValueIncorrect":          ValueRefused,
	"PropertyValueFormatError":        ValueRefused,
	"PropertyValueTypeError":          ValueRefused,
	"PropertyValueConflict":           ValueRefused,
	"PropertyValueError":              ValueRefused,
	"ActionParameterValueNotInList":   ValueRefused,
	"ActionParameterValueFormatError": ValueRefused,
	"ActionParameterValueTypeError":   ValueRefused,
	"ActionParameterValueError":       ValueRefused,
	"ActionParameterValueConflict":    ValueRefused,

	"PropertyUnknown":             MemberRefused,
	"PropertyNotWritable":         MemberRefused,
	"PropertyNotUpdated":          MemberRefused,
	"ActionParameterUnknown":      MemberRefused,
	"ActionParameterNotSupported": MemberRefused,

	"CouldNotEstablishConnection":  Unreachable,
	"ResourceAtUriUnauthorized":    Unreachable,
	"ResourceAtUriInUnknownFormat": Unreachable,
}

func (m Message) kind() Kind {
	return kinds[m.name()]
}

// Has tells whether one of the messages is of a kind.
func (r *Refusal) Has(kind Kind) bool {
	return slices.ContainsFunc(r.Messages, func(m Message) bool { return m.kind() == kind })
}

// IsTemporary tells whether the same request may succeed later.
func (r *Refusal) IsTemporary() bool {
	switch r.Status {
	case unavailable, tooMany, conflict, badGateway, gatewayTimeout:
		return true
	}
	return r.Passing || r.Has(NotNow)
}

// isAbout tells whether a message of a kind is about a member of the request, by its arguments, its related properties, or else its text.
func (r *Refusal) isAbout(kind Kind, member string) bool {
	for _, m := range r.Messages {
		if m.kind() != kind {
			continue
		}
		for _, arg := range slices.Concat(m.MessageArgs, m.RelatedProperties) {
			if lastPart(arg) == member {
				return true
			}
		}
		if len(m.MessageArgs)+len(m.RelatedProperties) == 0 && HasWord(m.Message, member) {
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
func (r *Refusal) isOfBody() bool {
	switch {
	case r.Status != badRequest && r.Status != unprocessable:
		return false
	case r.IsTemporary(), r.LacksLicence():
		return false
	}
	return !r.Has(Elsewhere) && !r.Has(Unreachable)
}

// licenceID are the ids of messages about licences: iLO.2.14.LicenseKeyRequired, SMC.1.0.OemLicenseNotPassed, IDRAC.2.8.LIC501.
var licenceID = regexp.MustCompile(`(?i)licen[cs]e|\.LIC[0-9]+$`)

// LacksLicence tells by the ids of its messages whether the BMC refused because it lacks a licence.
func (r *Refusal) LacksLicence() bool {
	return slices.ContainsFunc(r.Messages, func(m Message) bool { return licenceID.MatchString(m.ID) })
}

// TaskMessages are the messages of a refusal as those of a task that failed.
func (r *Refusal) TaskMessages() []Message {
	if len(r.Messages) > 0 {
		return r.Messages
	}
	return []Message{{Message: r.Text}}
}

// IsForGood tells whether the BMC refused the request itself, so that another resource, or another form of the request, may be taken.
func IsForGood(err error) bool {
	var refusal *Refusal
	return errors.As(err, &refusal) && !refusal.IsTemporary() && !errors.Is(err, driver.ErrLogin) && !errors.Is(err, driver.ErrLicence)
}

// IsForNow tells whether the BMC refused a request that it may take later.
func IsForNow(err error) bool {
	var refusal *Refusal
	return errors.As(err, &refusal) && refusal.IsTemporary()
}

// IsOfBody tells whether the BMC may take the same request with another body.
func IsOfBody(err error) bool {
	var refusal *Refusal
	return errors.As(err, &refusal) && refusal.isOfBody()
}

// IsElsewhere tells whether the BMC says that another resource takes the change.
func IsElsewhere(err error) bool {
	var refusal *Refusal
	return errors.As(err, &refusal) && refusal.Has(Elsewhere)
}

// StatusOf is the HTTP status of a refusal; 0: the error is none.
func StatusOf(err error) int {
	var refusal *Refusal
	if !errors.As(err, &refusal) {
		return 0
	}
	return refusal.Status
}

// HasWord tells whether text has the words in it, not as a part of another one.
func HasWord(text, words string) bool {
	for rest := text; ; {
		i := strings.Index(rest, words)
		if i < 0 {
			return false
		}
		before, after := i == 0 || !isLetter(rune(rest[i-1])), i+len(words) == len(rest) || !isLetter(rune(rest[i+len(words)]))
		if before && after {
			return true
		}
		rest = rest[i+1:]
	}
}

// IsOfGateway tells whether a gateway in front of the BMC refused, which may have passed the order on.
func IsOfGateway(err error) bool {
	status := StatusOf(err)
	return status == badGateway || status == gatewayTimeout
}
