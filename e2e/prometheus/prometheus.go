// Package prometheus queries a running Prometheus.
package prometheus

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// A Server is the URL of a Prometheus.
type Server string

// Get calls its HTTP API.
func (s Server) Get(path string, query url.Values, data any) error {
	response, err := http.Get(string(s) + "/api/v1/" + path + "?" + query.Encode())
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s %v: %s", path, query, answer.Error)
	}
	return json.Unmarshal(answer.Data, data)
}

// Has returns an error if an expression has no value.
func (s Server) Has(expression string) error {
	var data struct{ Result []struct{ Value [2]any } }
	if err := s.Get("query", url.Values{"query": {expression}}, &data); err != nil {
		return err
	}
	for _, r := range data.Result {
		if r.Value[1] != "NaN" {
			return nil
		}
	}
	return fmt.Errorf("got no value of %s, but %v", expression, data.Result)
}

// Evaluates returns an error until Prometheus has evaluated all rules, which must be n.
func (s Server) Evaluates(want int) error {
	var rules struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	if err := s.Get("rules", nil, &rules); err != nil {
		return err
	}
	got := 0
	for _, group := range rules.Groups {
		for _, r := range group.Rules {
			if r.Health != "ok" {
				return fmt.Errorf("%s: got health %s %s", r.Name, r.Health, r.LastError)
			}
			got++
		}
	}
	if got != want {
		return fmt.Errorf("got %d rules, want %d", got, want)
	}
	return nil
}

// Selectors returns the selectors of series in an expression, which Prometheus itself parses.
func (s Server) Selectors(expression string) (all []string, err error) {
	var tree any
	if err := s.Get("parse_query", url.Values{"query": {expression}}, &tree); err != nil {
		return nil, err
	}
	var walk func(any)
	walk = func(node any) {
		switch n := node.(type) {
		case []any:
			for _, inner := range n {
				walk(inner)
			}
		case map[string]any:
			if kind := n["type"]; kind == "vectorSelector" || kind == "matrixSelector" {
				var matchers []string
				for _, m := range n["matchers"].([]any) {
					matcher := m.(map[string]any)
					matchers = append(matchers, fmt.Sprintf("%s%s%q", matcher["name"], matcher["type"], matcher["value"]))
				}
				all = append(all, "{"+strings.Join(matchers, ",")+"}")
				return
			}
			for _, inner := range n {
				walk(inner)
			}
		}
	}
	walk(tree)
	return all, nil
}
