package client

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"salvor/problem"
)

// Message is one server-sent event.
type Message struct{ ID, Name, Data string }

const (
	maxMessageLine = 1 << 20
	// streamSilence is for how long a stream may say nothing, not even that it lives.
	streamSilence = time.Minute
)

// Stream reads server-sent events of an API until the stream ends (nil), ctx does, or each returns an error. cursor is
// where to go on from: the ID of the last message; empty: as the query says. It returns the newest cursor.
func (c *Client) Stream(ctx context.Context, f API, path string, query url.Values, cursor string, each func(Message) error) (string, error) {
	request := Request{Method: http.MethodGet, Path: f.Prefix + path, Query: query}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	call, err := c.build(ctx, request)
	if err != nil {
		return cursor, err
	}
	call.Header.Set("Accept", "text/event-stream")
	if cursor != "" {
		call.Header.Set("Last-Event-ID", cursor)
	}
	silent := time.AfterFunc(streamSilence, func() { cancel(errors.New("the stream fell silent")) })
	defer silent.Stop()
	unbounded := *c.http
	unbounded.Timeout = 0
	response, err := unbounded.Do(call)
	if err != nil {
		return cursor, problem.Unavailablef("%s: %w", request, stripURL(err))
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		answer, err := io.ReadAll(io.LimitReader(response.Body, maxMessage*8))
		if err != nil {
			return cursor, problem.Unavailablef("%s: read answer: %w", request, stripURL(err))
		}
		return cursor, request.refused(&Answer{Status: response.StatusCode, Header: response.Header, Body: answer})
	}
	return readMessages(response.Body, cursor, func(m Message) error {
		silent.Reset(streamSilence)
		if m.Data == "" {
			return nil
		}
		return each(m)
	})
}

// readMessages follows the format of server-sent events. A message without data only moves the cursor, or says that the stream lives.
func readMessages(r io.Reader, cursor string, each func(Message) error) (string, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxMessageLine)
	m := Message{ID: cursor}
	for lines.Scan() {
		line := strings.TrimSuffix(lines.Text(), "\r")
		if line == "" {
			m.Data = strings.TrimSuffix(m.Data, "\n")
			cursor = m.ID
			if err := each(m); err != nil {
				return cursor, err
			}
			m = Message{ID: cursor}
			continue
		}
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch key {
		case "id":
			m.ID = value
		case "event":
			m.Name = value
		case "data":
			m.Data += value + "\n"
		}
	}
	if err := lines.Err(); err != nil {
		return cursor, problem.Unavailablef("read the stream: %w", stripURL(err))
	}
	return cursor, nil
}
