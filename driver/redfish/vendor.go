package redfish

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"salvor/driver"
	"salvor/driver/redfish/conversation"
	"salvor/driver/redfish/link"
	"salvor/metal"
	"salvor/problem"
)

// Vendor is the vendor interface: subscriptions to the BMC's events, and the ejection of media by Redfish's own words.
type Vendor struct{ Driver *Driver }

var _ driver.Vendor = Vendor{}

// Methods describes what can be called.
var Methods = map[string]metal.VendorMethod{
	"create_subscription":   {HTTPMethods: []string{"POST"}, RequireExclusiveLock: true, Description: `Subscribes to the BMC's events. Required argument: {"Destination": URL}; optional: EventTypes, Context, Protocol, HttpHeaders.`},
	"delete_subscription":   {HTTPMethods: []string{"DELETE"}, RequireExclusiveLock: true, Description: `Ends a subscription. Required argument: {"id": id of the subscription at the BMC}.`},
	"get_all_subscriptions": {HTTPMethods: []string{"GET"}, Description: "Lists the subscriptions."},
	"get_subscription":      {HTTPMethods: []string{"GET"}, Description: `Shows a subscription. Required argument: {"id": id of the subscription at the BMC}.`},
	"eject_vmedia":          {HTTPMethods: []string{"POST"}, Async: true, RequireExclusiveLock: true, Description: "Ejects virtual media; optional argument: boot_device (cd, dvd, usb or floppy)."},
}

// Call runs a method.
func (v Vendor) Call(ctx context.Context, n *metal.Node, c metal.VendorCall) (any, error) {
	if c.Method == "eject_vmedia" {
		return nil, v.eject(ctx, n, c.Args)
	}
	var answer any
	err := v.Driver.with(ctx, n, "vendor method "+driver.Sanitize(c.Method), func(s *bmcSession) error {
		at, err := s.subscriptions()
		if err != nil {
			return err
		}
		switch c.Method {
		case "create_subscription":
			answer, err = s.subscribe(at, c.Args)
		case "delete_subscription":
			err = s.unsubscribe(at, c.Args)
		case "get_all_subscriptions":
			var all map[string]any
			_, err = s.bmc.Get(at, &all)
			answer = all
		case "get_subscription":
			answer, err = s.subscription(at, c.Args)
		default:
			err = problem.Invalidf("there is no such method")
		}
		return err
	})
	return answer, err
}

func (v Vendor) eject(ctx context.Context, n *metal.Node, args metal.Object) error {
	word := strings.ToLower(metal.Text(args["boot_device"]))
	if word == "" {
		return v.Driver.DetachMedia(ctx, n, nil)
	}
	device := map[string]string{"cd": "cdrom", "dvd": "cdrom", "usb": "disk", "usbstick": "disk", "floppy": "floppy"}[word]
	if device == "" {
		return problem.Invalidf("eject virtual media of node %s: boot_device must be cd, dvd, usb or floppy", n.ID)
	}
	return v.Driver.DetachMedia(ctx, n, []string{device})
}

// subscriptions is the path of the collection of subscriptions.
func (s *bmcSession) subscriptions() (string, error) {
	var top struct{ EventService link.Link }
	if _, err := s.bmc.Get(conversation.RootPath, &top); err != nil {
		return "", err
	}
	if top.EventService.Path == "" {
		return "", problem.Unsupportedf("the BMC has no event service: %s links to none", conversation.RootPath)
	}
	var service struct{ Subscriptions link.Link }
	if _, err := s.bmc.Get(top.EventService.Path, &service); err != nil {
		return "", err
	}
	if service.Subscriptions.Path == "" {
		return "", problem.Unsupportedf("the BMC's event service %s has no subscriptions", s.bmc.Quote(top.EventService.Path))
	}
	return service.Subscriptions.Path, nil
}

// shown are the parts of a subscription that users see; what goes with it in HTTP headers is secret.
var shown = []string{"Id", "Context", "Protocol", "Destination", "EventTypes"}

func subscriptionView(doc map[string]any) map[string]any {
	out := map[string]any{}
	for _, key := range shown {
		if v, ok := doc[key]; ok {
			out[key] = v
		}
	}
	return out
}

// subscriptionBody checks the arguments of a subscription and makes the BMC's of them.
func (s *bmcSession) subscriptionBody(args metal.Object) (map[string]any, error) {
	body := map[string]any{"Protocol": "Redfish", "Context": "", "EventTypes": []any{"Alert"}}
	for key, v := range args {
		ok := false
		switch key {
		case "Destination", "Context", "Protocol":
			_, ok = v.(string)
		case "EventTypes":
			_, ok = v.([]any)
		case "HttpHeaders":
			var list []any
			list, ok = v.([]any)
			s.hideHeaders(list)
		}
		if !ok {
			return nil, problem.Invalidf("%s is no argument of a subscription, or not of its type", driver.Sanitize(key))
		}
		body[key] = v
	}
	destination, _ := body["Destination"].(string)
	s.bmc.HideURL(destination)
	if u, err := url.Parse(destination); err != nil || u.Host == "" || u.Scheme == "" {
		return nil, problem.Invalidf("Destination must be a URL with a host")
	}
	return body, nil
}

func (s *bmcSession) hideHeaders(list []any) {
	for _, e := range list {
		header, _ := e.(map[string]any)
		for _, v := range header {
			if text, ok := v.(string); ok {
				s.bmc.Hide(text)
			}
		}
	}
}

// A subscription that the BMC took is looked for so often, with a pause after each look.
const (
	subscriptionLooks = 15
	subscriptionPause = 2 * time.Second
)

// subscribe makes a subscription. Some BMCs answer with the subscription, others with its path alone.
func (s *bmcSession) subscribe(at string, args metal.Object) (any, error) {
	body, err := s.subscriptionBody(args)
	if err != nil {
		return nil, err
	}
	order, err := s.bmc.Post(at, body)
	if err = order.Sure(err); err != nil {
		return nil, err
	}
	if err := s.bmc.Follow(s.bmc.Context(), order); err != nil {
		return nil, err
	}
	var doc map[string]any
	if order.Doc(&doc) && doc["Id"] != nil && order.Task == "" {
		return subscriptionView(doc), nil
	}
	if order.Created != "" && order.Task == "" {
		if _, err = s.bmc.Get(order.Created, &doc); s.bmc.LeaveOut(err) != nil {
			return nil, err
		}
		if doc == nil { // the BMC made the subscription, and does not show it
			doc = map[string]any{"Id": link.ID(order.Created), "Destination": body["Destination"]}
		}
		return subscriptionView(doc), nil
	}
	// A BMC may make the subscription later than it says. To ask for it again would make two.
	var found map[string]any
	for range subscriptionLooks {
		_, err = conversation.Each(s.bmc, link.Link{Path: at}, maxParts, func(_, _ string, one *map[string]any) {
			if (*one)["Destination"] == body["Destination"] {
				found = *one // the last is the newest
			}
		})
		if err != nil || found != nil || driver.Pause(s.bmc.Context(), subscriptionPause) != nil {
			break
		}
	}
	if err == nil && found == nil {
		err = problem.Conflictf("the BMC took the subscription, and does not list it within %s; look for it with get_all_subscriptions", subscriptionLooks*subscriptionPause)
	}
	return subscriptionView(found), err
}

// one is the path of a subscription among those of the collection.
func (s *bmcSession) one(at string, args metal.Object) (string, error) {
	id, _ := args["id"].(string)
	if id == "" {
		return "", problem.Invalidf("the argument id is missing")
	}
	all, err := s.bmc.Members(at, maxParts)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(all, func(l link.Link) bool {
		return strings.HasSuffix(strings.TrimRight(l.Path, "/"), "/"+url.PathEscape(id))
	})
	if i < 0 {
		return "", problem.NotFoundf("the BMC has no subscription %s", driver.Sanitize(id))
	}
	return all[i].Path, nil
}

func (s *bmcSession) subscription(at string, args metal.Object) (any, error) {
	path, err := s.one(at, args)
	if err != nil {
		return nil, err
	}
	var doc map[string]any
	if _, err := s.bmc.Get(path, &doc); err != nil {
		return nil, err
	}
	return subscriptionView(doc), nil
}

func (s *bmcSession) unsubscribe(at string, args metal.Object) error {
	path, err := s.one(at, args)
	if err != nil {
		return err
	}
	order, err := s.bmc.Delete(path)
	return order.Sure(err)
}
