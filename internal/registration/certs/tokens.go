package certs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fastadmit/fastadmit/internal/registration/pathtoken"
)

const (
	// PathTokenPlaceholder is the segment in the path of a webhook that the Manager
	// replaces by the path token. It is not a valid token.
	PathTokenPlaceholder = "path-token"

	// pathTokensKey is the key of the Secret with the tokens: on each line a token and the
	// time when it was made. The newest comes first.
	pathTokensKey = "path-tokens"

	// probesEach is how often a pass asks the Service, for each configuration, whether a
	// replica accepts the next token. probePasses is the number of passes within
	// Propagation. With two configurations that is 300 random choices: they miss one
	// replica in 50 that does not accept it once in 400 times.
	probesEach, probePasses = 5, 30
)

// A token is a path token, and when it was made.
type token struct {
	text string
	made time.Time
}

// tokens are the path tokens that a Manager knows. They belong to the goroutine
// of Run.
type tokens struct {
	all []token // in the Secret, newest first

	// accepted are the tokens that calls may have, and "" if a call may have none. The
	// value is when the token was found to be gone from Secret and configurations, zero
	// while it is in one of them.
	accepted  map[string]time.Time
	published []string

	usedSince time.Time // since when all webhooks are registered with the newest; zero if they are not

	next      string    // the newest token, while webhooks are registered without it
	nextSince time.Time // since when all replicas that were asked accept it
	fault     string    // why the next one is not registered
}

// parseTokens reads what encodeTokens wrote. The error does not show a token.
func parseTokens(text []byte) (all []token, err error) {
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		first, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		made, err := time.Parse(time.RFC3339, rest)
		if err != nil {
			err = errors.New("got no time after the token, want the time of its creation, as in 2006-01-02T15:04:05Z")
		}
		if err := errors.Join(pathtoken.Check(first), err); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", pathTokensKey, number, err)
		}
		all = append(all, token{first, made})
	}
	if len(all) > pathtoken.TokensMax {
		return nil, fmt.Errorf("%s: got %d tokens, want at most %d", pathTokensKey, len(all), pathtoken.TokensMax)
	}
	return all, nil
}

func encodeTokens(all []token) (text []byte) {
	for _, t := range all {
		text = fmt.Appendf(text, "%s %s\n", t.text, t.made.UTC().Format(time.RFC3339))
	}
	return text
}

// nextTokens returns the tokens that replace those in the Secret, and why; "" means that
// nothing changes. If the Secret has no tokens, there will be a new one.
func (m *Manager) nextTokens(have []token, now time.Time) (all []token, why string) {
	if m.o.PathTokens == nil {
		return nil, ""
	}
	fresh := token{pathtoken.New(), now}
	switch {
	case len(have) == 0:
		known := m.tokens.all[:min(len(m.tokens.all), pathtoken.TokensMax-1)]
		return append([]token{fresh}, known...), "there is no path token"
	case len(have) > 1 && m.retired(have[0].text):
		return have[:1], "an old path token is not used any more"
	case len(have) == 1 && have[0].made.Sub(now).Abs() >= m.o.PathTokenLife: // or made by a clock that was ahead
		return []token{fresh, have[0]}, "the path token is due"
	}
	if len(have) == 1 {
		m.wakeAtDate(have[0].made.Add(m.o.PathTokenLife))
	}
	return have, ""
}

// retired reports whether all API servers can be expected to call with the newest token. They
// need Propagation to learn of it, and as long again to end the calls that had begun.
func (m *Manager) retired(newest string) bool {
	t := &m.tokens
	return len(t.all) > 0 && t.all[0].text == newest && !t.usedSince.IsZero() && m.usedByAll(newest) &&
		!time.Now().Before(t.usedSince.Add(2*m.o.Propagation))
}

// liveTokens returns the token in the path of each registered webhook, "" for a path without
// one.
func (m *Manager) liveTokens() (all []string) {
	for _, r := range m.registrations {
		if !r.complete {
			continue
		}
		for _, w := range webhooks(r.live) {
			all = append(all, tokenIn(pathOf(w), m.tokenAt()))
		}
	}
	return all
}

func (m *Manager) usedByAll(token string) bool {
	return !slices.ContainsFunc(m.liveTokens(), func(live string) bool { return live != token })
}

// heard reports whether there are tokens and all webhook configurations were
// read once. Before that it is not known which tokens API servers call with.
func (m *Manager) heard() bool {
	return m.o.PathTokens == nil || len(m.tokens.all) > 0 && !slices.ContainsFunc(m.registrations, func(r *registration) bool { return !r.known })
}

// acceptTokens makes the server accept calls with the tokens in the Secret and in the
// configurations: who may write webhook configurations decides anyway what is called. Tokens
// that are gone from both are accepted for some time more. A configuration that cannot be read
// counts as unchanged.
func (m *Manager) acceptTokens(now time.Time) {
	if m.o.PathTokens == nil {
		return
	}
	t, live := &m.tokens, m.liveTokens()
	there := make(map[string]bool)
	for _, own := range t.all {
		there[own.text] = true
	}
	for _, token := range live {
		there[token] = true
	}
	for token := range there {
		t.accepted[token] = time.Time{}
	}
	for token, gone := range t.accepted {
		until := gone.Add(2 * m.o.Propagation)
		switch {
		case there[token]:
		case gone.IsZero():
			t.accepted[token] = now
			m.wakeBy(now.Add(2 * m.o.Propagation))
		case now.Before(until):
			m.wakeBy(until)
		default:
			delete(t.accepted, token)
		}
	}
	switch used := m.usedByAll(t.all[0].text); {
	case !used:
		t.usedSince = time.Time{}
	case t.usedSince.IsZero():
		t.usedSince = now
	}
	if len(t.all) > 1 && !t.usedSince.IsZero() {
		m.wakeBy(t.usedSince.Add(2 * m.o.Propagation))
	}
	m.publishTokens()
}

func (m *Manager) publishTokens() {
	t := &m.tokens
	accepted := slices.Sorted(maps.Keys(t.accepted))
	if slices.Equal(accepted, t.published) {
		return
	}
	bare := accepted[0] == ""
	if wasBare := len(t.published) > 0 && t.published[0] == ""; bare && !wasBare {
		m.o.Log.Warn("accepting calls without a path token, because a webhook configuration has none yet; this ends when all have one")
	} else if wasBare && !bare {
		m.o.Log.Info("refusing calls without a path token")
	}
	t.published = accepted
	tokens := slices.Clone(accepted)
	if bare {
		tokens = tokens[1:]
	}
	m.o.PathTokens(tokens, bare)
}

// tokenToRegister returns the token for the paths of webhooks, "" for none. It is the newest
// token once all replicas accept it, and the registered one until then.
func (m *Manager) tokenToRegister() string {
	t := &m.tokens
	if len(t.all) == 0 {
		return ""
	}
	live := m.liveTokens()
	for i, own := range t.all {
		// If the newest is registered, another replica has registered it.
		if i == 0 && (len(live) == 0 || m.tokenSettled(time.Now())) || slices.Contains(live, own.text) {
			return own.text
		}
	}
	return slices.Max(live) // "" is the least
}

// tokenSettled reports whether all replicas can be expected to accept the next token.
func (m *Manager) tokenSettled(now time.Time) bool {
	t := &m.tokens
	return t.next != "" && t.next == t.all[0].text && !now.Before(t.nextSince.Add(m.o.Propagation))
}

// awaitToken asks replicas whether they accept the newest token, until it is registered. A
// replica that does not, because it runs an older version or has not read the Secret, would
// refuse the calls of API servers.
func (m *Manager) awaitToken(ctx context.Context) {
	t := &m.tokens
	if m.o.PathTokens == nil {
		return
	}
	newest := t.all[0].text
	if live := m.liveTokens(); len(live) == 0 || slices.Contains(live, newest) {
		t.next = ""
		return
	}
	if t.next != newest {
		t.next, t.nextSince = newest, time.Now()
		m.wakeBy(t.nextSince.Add(m.o.Propagation / probePasses)) // the other replicas read the Secret meanwhile
		return
	}
	var err error
	for range probesEach {
		for _, r := range m.registrations {
			if err == nil && r.complete {
				err = m.probe(ctx, r.desired, newest)
			}
		}
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		t.nextSince = time.Now()
		err = fmt.Errorf("not registering the new path token yet: %w", err)
	}
	if !m.tried(serviceResource, &t.fault, err) {
		m.wakeBy(time.Now().Add(retries.Cap))
	} else if !m.tokenSettled(time.Now()) {
		m.wakeBy(time.Now().Add(m.o.Propagation / probePasses))
	}
}

// redact returns a text without the tokens. An error of an API server may contain a path, and
// is logged.
func (m *Manager) redact(text string) string {
	for token := range m.tokens.accepted {
		if token != "" {
			text = strings.ReplaceAll(text, token, PathTokenPlaceholder)
		}
	}
	return text
}
