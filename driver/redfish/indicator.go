package redfish

import (
	"context"
	"slices"

	"salvor/driver"
	"salvor/driver/redfish/conversation"
	"salvor/driver/redfish/link"
	"salvor/metal"
	"salvor/problem"
)

// indicatorResource is the part of a system, a chassis or a drive that has an indicator light: the newer
// property where the BMC knows it, else the older.
type indicatorResource struct {
	ID     string  `json:"Id"`
	LED    *string `json:"IndicatorLED"`
	Active *bool   `json:"LocationIndicatorActive"`

	Settings struct {
		SettingsObject link.Link
	} `json:"@Redfish.Settings"`

	path, etag string
}

// leds are the older property's words.
var leds = []struct{ word, led string }{{"on", "Lit"}, {"off", "Off"}, {"blinking", "Blinking"}}

func (l indicatorResource) there() bool { return l.ID != "" && (l.LED != nil || l.Active != nil) }

func (l indicatorResource) states() []string {
	if l.Active != nil {
		return []string{"off", "on"}
	}
	return []string{"blinking", "off", "on"}
}

func (l indicatorResource) state() string {
	if l.Active != nil {
		return map[bool]string{true: "on", false: "off"}[*l.Active]
	}
	for _, one := range leds {
		if one.led == *l.LED {
			return one.word
		}
	}
	return "unknown"
}

// order is the change that sets a state.
func (l indicatorResource) order(state string) map[string]any {
	if l.Active != nil {
		return map[string]any{"LocationIndicatorActive": state == "on"}
	}
	for _, one := range leds {
		if one.word == state {
			return map[string]any{"IndicatorLED": one.led}
		}
	}
	return nil
}

// indicators reads those of the system, its chassis and its drives, by Ironic's words for components.
func (s *bmcSession) indicators() (map[string][]indicatorResource, error) {
	sys, err := s.read()
	if err != nil {
		return nil, err
	}
	paths := map[string]link.Links{"system": {{Path: s.system}}, "chassis": sys.Links.Chassis}
	err = forEachMember(s, sys.Storage, func(c struct{ Drives link.Links }) { paths["disk"] = append(paths["disk"], c.Drives...) })
	if err := s.bmc.LeaveOut(err); err != nil {
		return nil, err
	}
	out := map[string][]indicatorResource{}
	for component, links := range paths {
		_, err := conversation.EachOf(s.bmc, links[:min(len(links), maxParts)], func(path, etag string, one *indicatorResource) {
			if one.path, one.etag = path, etag; one.there() {
				out[component] = append(out[component], *one)
			}
		})
		if err := s.bmc.LeaveOut(err); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Indicators lists the indicator lights.
func (d *Driver) Indicators(ctx context.Context, n *metal.Node) (map[string]map[string]metal.Indicator, error) {
	out := map[string]map[string]metal.Indicator{}
	err := d.with(ctx, n, "list indicators", func(s *bmcSession) error {
		all, err := s.indicators()
		for component, lamps := range all {
			out[component] = map[string]metal.Indicator{}
			for _, l := range lamps {
				out[component][l.ID] = metal.Indicator{States: l.states()}
			}
		}
		return err
	})
	return out, err
}

// Indicator reads the state of an indicator light.
func (d *Driver) Indicator(ctx context.Context, n *metal.Node, component, name string) (string, error) {
	state := ""
	err := d.with(ctx, n, "read indicator", func(s *bmcSession) error {
		l, err := s.indicator(component, name)
		if err == nil {
			state = l.state()
		}
		return err
	})
	return state, err
}

func (s *bmcSession) indicator(component, name string) (indicatorResource, error) {
	all, err := s.indicators()
	if err != nil {
		return indicatorResource{}, err
	}
	i := slices.IndexFunc(all[component], func(l indicatorResource) bool { return l.ID == name })
	if i < 0 {
		return indicatorResource{}, problem.NotFoundf("there is no indicator %s@%s", driver.Sanitize(name), driver.Sanitize(component))
	}
	return all[component][i], nil
}

// SetIndicator sets an indicator light and reads it back.
func (d *Driver) SetIndicator(ctx context.Context, n *metal.Node, component, name, state string) error {
	return d.with(ctx, n, "set indicator", func(s *bmcSession) error {
		l, err := s.indicator(component, name)
		if err != nil {
			return err
		}
		if !slices.Contains(l.states(), state) {
			return problem.Invalidf("indicator %s@%s cannot be set to %s", driver.Sanitize(name), driver.Sanitize(component), driver.Sanitize(state))
		}
		if l.state() == state {
			return nil
		}
		order, err := s.patchEither(&patchTarget{path: l.path, etag: l.etag, settings: l.Settings.SettingsObject.Path}, l.order(state))
		if err != nil {
			return err
		}
		done, err := s.bmc.Prove(ctx, order, func(context.Context) (bool, error) {
			now := indicatorResource{}
			_, err := s.bmc.Get(l.path, &now)
			return err == nil && now.there() && now.state() == state, err
		})
		if !done && err == nil {
			err = problem.Unavailablef("%s, but the indicator does not show it", s.bmc.Taken(order))
		}
		return err
	})
}
