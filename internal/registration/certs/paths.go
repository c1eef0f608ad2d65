package certs

import (
	"errors"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fastadmit/fastadmit/internal/registration/pathtoken"
)

// segments returns the segments of a path.
func segments(path string) []string { return strings.Split(strings.TrimPrefix(path, "/"), "/") }

// pathOf returns the path of a webhook, "" if it has none.
func pathOf(webhook map[string]any) string {
	if at, ok, _ := unstructured.NestedString(webhook, "clientConfig", "url"); ok {
		u, err := url.Parse(at)
		if err != nil {
			return ""
		}
		return u.Path
	}
	path, _, _ := unstructured.NestedString(webhook, "clientConfig", "service", "path")
	return path
}

func setPath(webhook map[string]any, path string) error {
	at, ok, _ := unstructured.NestedString(webhook, "clientConfig", "url")
	if !ok {
		return unstructured.SetNestedField(webhook, path, "clientConfig", "service", "path")
	}
	u, err := url.Parse(at)
	if err != nil {
		return err
	}
	u.Path, u.RawPath = path, ""
	return unstructured.SetNestedField(webhook, u.String(), "clientConfig", "url")
}

// tokenIn returns the token at an index among the segments of a path, "" if there is none.
func tokenIn(path string, at int) string {
	if all := segments(path); at >= 0 && at < len(all) && pathtoken.Check(all[at]) == nil {
		return all[at]
	}
	return ""
}

// withToken returns the path with a token, or without one if the token is empty.
func withToken(path, token string, at int) string {
	all := segments(path)
	if tokenIn(path, at) != "" {
		all = slices.Delete(all, at, at+1)
	}
	if token != "" && at >= 0 && at <= len(all) {
		all = slices.Insert(all, at, token)
	}
	return "/" + strings.Join(all, "/")
}

// takePlaceholder removes the placeholder from the paths of a configuration, records its
// index, and checks that it exists if path tokens are enabled.
func (o *Options) takePlaceholder(c *configuration) error {
	c.tokenAt = -1
	for _, w := range webhooks(c.object) {
		all := segments(pathOf(w))
		at := slices.Index(all, PathTokenPlaceholder)
		switch {
		case o.PathTokens == nil && at < 0:
			continue
		case o.PathTokens == nil:
			return errors.New("got a path with a placeholder for a path token, want Options.PathTokens then")
		case at < 0 || c.tokenAt >= 0 && at != c.tokenAt:
			return errors.New("got a path without the placeholder for a path token, or with one elsewhere than others have it, want it in all paths")
		}
		c.tokenAt = at
		if err := setPath(w, "/"+strings.Join(slices.Delete(all, at, at+1), "/")); err != nil {
			return err
		}
	}
	return nil
}

// tokenAt returns the index of tokens in the paths of all configurations, negative if there
// are none.
func (m *Manager) tokenAt() int {
	at := -1
	for _, r := range m.registrations {
		if r.desired != nil {
			at = max(at, r.desired.tokenAt)
		}
	}
	return at
}

// otherToken reports whether a webhook is registered with another token than it should be.
func (m *Manager) otherToken(webhook map[string]any) bool {
	return m.o.PathTokens != nil && tokenIn(pathOf(webhook), m.tokenAt()) != m.tokenToRegister()
}

// setToken puts the token to register into the path of a webhook.
func (m *Manager) setToken(webhook map[string]any) error {
	if m.o.PathTokens == nil {
		return nil
	}
	return setPath(webhook, withToken(pathOf(webhook), m.tokenToRegister(), m.tokenAt()))
}
