// Package nova sends OpenStack Compute events about the machines of its servers. It knows no node and no job.
package nova

import (
	"context"
	"net/http"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	"salvor/openstack"
	"salvor/problem"
)

const (
	// microversion is the first one in which Nova takes power-update events.
	microversion = "2.76"
	// atOnce bounds the requests to Nova at a time: a Nova that hangs must not hold many of a conductor's workers.
	atOnce = 4
	// waitTime is how long an event waits for one of these places before it is tried again later.
	waitTime = time.Second
)

// Events sends events to one Nova. It is safe for use by several goroutines.
type Events struct {
	client *openstack.Client
	places chan struct{}
}

// New makes the sender of events; nothing is asked yet.
func New(client *openstack.Client) *Events {
	return &Events{client: client, places: make(chan struct{}, atOnce)}
}

// powerEvent is one event of POST /os-server-external-events, and, with the code, the answer to it.
type powerEvent struct {
	Name   string `json:"name"`
	Server string `json:"server_uuid"`
	Tag    string `json:"tag"`
	Code   int    `json:"code,omitempty"`
}

type eventsBody struct {
	Events []powerEvent `json:"events"`
}

// SendPower has Nova know that the machine of a server is on, or off. Errors: problem.NotFound if Nova has no such server or no host for it,
// problem.Unavailable if a later try may succeed, problem.Invalid if Nova or Keystone refuses what salvor is or sends.
func (e *Events) SendPower(ctx context.Context, server string, on bool) error {
	op := "send Nova a power-update event of server " + server
	timer := time.NewTimer(waitTime)
	defer timer.Stop()
	select {
	case e.places <- struct{}{}:
		defer func() { <-e.places }()
	case <-timer.C:
		return problem.Unavailablef("%s: Nova has not answered earlier events yet", op)
	case <-ctx.Done():
		return problem.Unavailablef("%s: %w", op, context.Cause(ctx))
	}
	service, err := e.client.Service(ctx)
	if err != nil {
		return err
	}
	versioned := *service
	versioned.Microversion = microversion
	tag := "POWER_OFF"
	if on {
		tag = "POWER_ON"
	}
	var answer eventsBody
	_, err = versioned.Post(ctx, versioned.ServiceURL("os-server-external-events"), eventsBody{Events: []powerEvent{{Name: "power-update", Server: server, Tag: tag}}},
		&answer, &gophercloud.RequestOpts{OkCodes: []int{http.StatusOK, http.StatusMultiStatus}})
	if err != nil {
		return e.client.Classify(err, op)
	}
	if len(answer.Events) != 1 {
		return problem.Unavailablef("%s: Nova answers about %d events", op, len(answer.Events))
	}
	// The answer as a whole may be good while the event was refused.
	switch code := answer.Events[0].Code; {
	case code < http.StatusBadRequest:
		return nil
	case code == http.StatusNotFound || code == http.StatusUnprocessableEntity:
		return problem.NotFoundf("%s: Nova has no such server, or no host for it (%d)", op, code)
	case code < http.StatusInternalServerError:
		return problem.Invalidf("%s: Nova refuses the event (%d)", op, code)
	default:
		return problem.Unavailablef("%s: Nova failed at the event (%d)", op, code)
	}
}
