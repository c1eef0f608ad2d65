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

	// pathTokensKey is the key of the Secret with the tokens: on each line one, and
	// when it was made. The newest comes first.
	pathTokensKey = "path-tokens"

	// probesEach is how often the Service is asked in a pass, for each configuration,
	// whether a replica takes the next token, and probePasses how many passes there
	// are while Propagation lasts. With both configurations, one of 50 replicas that
	// does not take it is missed by 300 random choices once in 400 times.
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
	all []token // what the Secret had last, newest first

	// accepted are the tokens that calls may have, and "" if none will do as well:
	// when each was found to be gone from Secret and configurations, zero while it
	// is there.
	accepted  map[string]time.Time
	published []string

	usedSince time.Time // since when all webhooks are called with the newest; zero if they are not

	next      string    // the newest one, while webhooks are called without it
	nextSince time.Time // since when all replicas that were asked take it
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

// nextTokens returns which tokens the Secret is to have where it has these, and
// why; "" says that these are right. One that has none is a wish for a new one.
func (m *Manager) nextTokens(have []token, now time.Time) (all []token, why string) {
	if m.o.PathTokens == nil {
		return nil, ""
	}
	fresh := token{pathtoken.New(), now}
	switch {
	case len(have) == 0:
		known := m.tokens.all[:min(len(m.tokens.all), pathtoken.TokensMax-1)]
		return append([]token{fresh}, known...), "there is no path token"
	case len(have) > 1 && m.retired(have[0].text, now):
		return have[:1], "an old path token is not used any more"
	case len(have) == 1 && !now.Before(have[0].made.Add(m.o.PathTokenLife)):
		return []token{fresh, have[0]}, "the path token is due"
	}
	if len(have) == 1 {
		m.wakeBy(have[0].made.Add(m.o.PathTokenLife))
	}
	return have, ""
}

// retired reports whether no API server can be expected to call with another
// token than the newest: for Propagation they learned of it, for as long calls
// ended that had begun.
func (m *Manager) retired(newest string, now time.Time) bool {
	t := &m.tokens
	return len(t.all) > 0 && t.all[0].text == newest && !t.usedSince.IsZero() && m.usedByAll(newest) &&
		!now.Before(t.usedSince.Add(2*m.o.Propagation))
}

// liveTokens returns the token in the path of each webhook there is, "" where
// there is none.
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

// acceptTokens has the server take calls with the tokens in the Secret, and with
// what is registered: whoever may write webhook configurations decides what is
// called anyway. What is gone from both is taken for some time more. What cannot
// be read is as it was.
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

// tokenToRegister returns the token that webhooks are to be called with, "" for
// none: the newest as soon as that is taken everywhere, and until then what API
// servers call with already.
func (m *Manager) tokenToRegister() string {
	t := &m.tokens
	if len(t.all) == 0 {
		return ""
	}
	live := m.liveTokens()
	for i, own := range t.all {
		// Another replica registered the newest if it is there.
		if i == 0 && (len(live) == 0 || m.tokenSettled(time.Now())) || slices.Contains(live, own.text) {
			return own.text
		}
	}
	return slices.Max(live) // "" is the least
}

// tokenSettled reports whether all replicas can be expected to take the next
// token.
func (m *Manager) tokenSettled(now time.Time) bool {
	t := &m.tokens
	return t.next != "" && t.next == t.all[0].text && !now.Before(t.nextSince.Add(m.o.Propagation))
}

// awaitToken asks replicas whether they take the newest token, as long as it is
// not registered. One that does not, for it runs an older version or did not
// hear of it, would turn away API servers.
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
		m.wakeBy(t.nextSince.Add(m.o.Propagation / probePasses)) // the others hear of it meanwhile
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

// redact returns a text without the tokens: an API server may say what is wrong
// with a path, in an error that is logged.
func (m *Manager) redact(text string) string {
	for token := range m.tokens.accepted {
		if token != "" {
			text = strings.ReplaceAll(text, token, PathTokenPlaceholder)
		}
	}
	return text
}
