package refusal

import "testing"

// TestRefusalsWithin: some BMCs refuse in an answer whose status says that the request succeeded, and some say there that it did.
func TestRefusalsWithin(t *testing.T) {
	info := func(id, severity string) string {
		return `{"error":{"code":"x","@Message.ExtendedInfo":[{"MessageId":"` + id + `","Severity":"` + severity + `"}]}}`
	}
	for _, c := range []struct {
		body   string
		isRead bool
		want   bool // the request was surely refused
		doubt  bool // only a look at the machine tells
	}{
		{info("Base.1.8.InternalError", "Critical"), false, true, false},
		{info("Base.1.8.ActionParameterUnknown", ""), false, true, false},
		{info("Odd.1.0.FirmwareFlashing", ""), false, false, true}, // nobody knows whether the order was taken: a look tells
		{info("Odd.1.0.Interlock", ""), true, true, false},
		{info("Base.1.8.Success", ""), false, false, false},
		{info("Base.1.8.Success", ""), true, false, false},
		{info("iLO.2.14.SystemResetRequired", ""), false, false, false},
		{info("Odd.1.0.Interlock", "OK"), false, false, false},
		{`{"@odata.id":"/x","error":{"@Message.ExtendedInfo":[{"MessageId":"Odd.1.0.Interlock"}]}}`, true, false, false},
		{`{"@odata.id":"/x","@Message.ExtendedInfo":[{"MessageId":"Odd.1.0.Interlock"}]}`, true, false, false},
		{`{"Name":"x"}`, false, false, false}, {"", false, false, false},
	} {
		if r, got := Within([]byte(c.body), c.isRead); got != c.want || (r != nil) != (c.want || c.doubt) {
			t.Errorf("%s, read %t: refusal %v, sure %t; want a refusal %t, sure %t", c.body, c.isRead, r, got, c.want || c.doubt, c.want)
		}
	}
}

// TestWords: the BMC's own words where there are some, else what its id means, with the arguments.
func TestWords(t *testing.T) {
	for body, want := range map[string]string{
		`{"error":{"code":"iLO.0.10.ExtendedInfo","message":"See @Message.ExtendedInfo for more information.","@Message.ExtendedInfo":[{"MessageId":"iLO.2.14.MaxVirtualMediaConnectionEstablished"}]}}`: "the virtual drive is in use already [MaxVirtualMediaConnectionEstablished]",
		`{"error":{"@Message.ExtendedInfo":[{"MessageId":"Base.1.0.ActionParameterNotSupported","MessageArgs":["ResetType",7]}]}}`:                                                                       "a parameter is not supported (ResetType, 7) [ActionParameterNotSupported]",
		`{"error":{"@Message.ExtendedInfo":[{"MessageId":"Odd.1.0.Interlock"}]}}`:                                                                                                                        "Interlock",
		`{"error":{"message":"no","@Message.ExtendedInfo":{"Message":"the interlock is engaged"}}}`:                                                                                                      "the interlock is engaged",
		`{"error":{"message":"no","@Message.ExtendedInfo":[{"Message":7}]}}`:                                                                                                                             "no",
		"<html><h1>500</h1>oops</html>": "500 oops",
	} {
		if got := New(400, []byte(body)).Text; got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
}
