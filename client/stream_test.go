package client

import (
	"errors"
	"net/http"
	"strings"
	"testing"
)

func TestReadMessages(t *testing.T) {
	var got []Message
	cursor, err := readMessages(strings.NewReader("retry: 2000\n\n: beat\n\nid: 4\r\nevent: event\r\ndata: {\"a\":\r\ndata: 1}\r\n\r\nid: 9\n\nid: 10\ndata: cut off"), "3", func(m Message) error {
		got = append(got, m)
		return nil
	})
	if err != nil || cursor != "9" {
		t.Fatalf("cursor %q, %v", cursor, err)
	}
	want := Message{"4", "event", "{\"a\":\n1}"}
	if len(got) != 4 || got[2] != want || got[0].ID != "3" || got[3].Data != "" {
		t.Errorf("%+v", got)
	}
	stop := errors.New("enough")
	if _, err := readMessages(strings.NewReader("data: x\n\n"), "", func(Message) error { return stop }); err != stop {
		t.Errorf("%v", err)
	}
}

func TestStream(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") != "text/event-stream" || r.URL.Path != "/salvor/v1/events" {
			http.Error(w, "no", http.StatusNotFound)
			return
		}
		_, _ = w.Write([]byte("id: " + r.Header.Get("Last-Event-ID") + "1\ndata: x\n\n"))
	})
	cursor, err := c.Stream(t.Context(), Native, "/events", nil, "7", func(Message) error { return nil })
	if cursor != "71" || err != nil {
		t.Errorf("%q %v", cursor, err)
	}
	if _, err := c.Stream(t.Context(), Native, "/elsewhere", nil, "", nil); StatusOf(err) != http.StatusNotFound {
		t.Errorf("%v", err)
	}
}

func FuzzReadMessages(f *testing.F) {
	f.Add("id: 4\nevent: event\ndata: {}\n\n")
	f.Add(": beat\nid\n\ndata")
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = readMessages(strings.NewReader(text), "", func(m Message) error {
			if strings.ContainsAny(m.ID+m.Name, "\n") {
				t.Errorf("%+v", m)
			}
			return nil
		})
	})
}
