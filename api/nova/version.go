package nova

import (
	"errors"
	"net/http"

	"salvor/api"
)

// speak reads the microversion of a request and tells it in the answer.
func (s *apiServer) speak(c *api.Call) error {
	h := c.W.Header()
	setVaryHeader(h)
	// Clients of this API look for the request's id under names of its own.
	for _, name := range []string{"X-Openstack-Request-Id", "X-Compute-Request-Id"} {
		h.Set(name, api.Of(c.R.Context()).ID)
	}
	minor, err := s.versions.Parse(c.R.Header)
	if err != nil {
		var bad *api.BadVersion
		if errors.As(err, &bad) && bad.Parsed {
			return &api.Error{Status: http.StatusNotAcceptable, Text: bad.Text}
		}
		return &api.Error{Status: http.StatusBadRequest, Text: err.Error()}
	}
	c.Minor = minor
	h.Set(standardHeader, "compute "+s.versions.Text(minor))
	h.Set(versionHeader, s.versions.Text(minor))
	return nil
}

// setVaryHeader tells caches by what answers differ.
func setVaryHeader(h http.Header) { h["Vary"] = []string{standardHeader, versionHeader} }

// document describes the API that lies at a path.
func (s *apiServer) document(base, path string) jsonObject {
	v := jsonObject{
		"id": "v2.1", "status": "CURRENT", "version": s.versions.Text(MaxVersion), "min_version": s.versions.Text(MinVersion),
		"updated": "2013-07-23T11:33:21Z", "links": []resourceLink{{"self", base + path + "/"}},
		"media_types": []jsonObject{{"base": "application/json", "type": "application/vnd.openstack.compute+json;version=2.1"}},
	}
	if path == legacyPath { // a client of 2.0 knows no microversions
		v["id"], v["status"], v["version"], v["min_version"] = "v2.0", "SUPPORTED", "", ""
		v["updated"] = "2011-01-21T11:33:21Z"
	}
	return v
}

// version answers with the list of versions, or with the one that lies at the path.
func (s *apiServer) version(path string) func(*api.Call) error {
	return func(c *api.Call) error {
		if path == rootPath {
			return c.JSON(http.StatusOK, jsonObject{"versions": []jsonObject{s.document(c.Base, legacyPath), s.document(c.Base, currentPath)}})
		}
		return c.JSON(http.StatusOK, jsonObject{"version": s.document(c.Base, path)})
	}
}
