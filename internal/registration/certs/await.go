package certs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"time"
)

const (
	// awaitEvery is how often AwaitRegistered checks the registration.
	awaitEvery = time.Second

	// awaitGood is how many checks in a row must find the registration right. Each
	// reaches one of the replicas: if one of two has not read the configuration, five
	// checks miss it once in 32 times, and with two webhooks once in 1,024.
	// kube-apiservers, which learn of a registration by a watch, have some seconds
	// for that.
	awaitGood = 5
)

// AwaitRegistered waits until kube-apiserver can call all webhooks of
// Options.Configurations: they are registered with their rules, their Service
// answers at its cluster IP with a certificate that their caBundle verifies, and
// the server that answers has read Options.Configuration. It changes nothing. It
// needs the permission get for the configurations and the Service. Call it in a
// process that does not call Run. If ctx ends, the error says what is missing.
func (m *Manager) AwaitRegistered(ctx context.Context) error {
	var missing error
	for good := 0; ; {
		found := m.checkRegistered(ctx)
		if ended(ctx) {
			return cmp.Or(missing, found, context.DeadlineExceeded)
		}
		if found != nil && (missing == nil || found.Error() != missing.Error()) {
			m.o.Log.Info("not registered yet", "missing", found.Error())
		}
		missing = found
		if good++; found != nil {
			good = 0
		}
		if good == awaitGood {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(awaitEvery):
		}
	}
}

// ended reports whether ctx has ended. A call that fails at the deadline may return
// before ctx.Err does, and its error does not tell what is missing.
func ended(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

func (m *Manager) checkRegistered(ctx context.Context) error {
	clear(m.addresses)
	for _, r := range m.registrations {
		if err := m.read(ctx, r); err != nil {
			return err
		}
		if err := m.checkRegistration(ctx, r); err != nil {
			return fmt.Errorf("%s %s: %w", r.kind.kind, r.name, err)
		}
	}
	return nil
}

// checkRegistration compares an existing registration with the desired one, and
// calls its webhooks.
func (m *Manager) checkRegistration(ctx context.Context, r *registration) error {
	wanted := webhooks(r.desired.object)
	if len(wanted) > 0 && r.live == nil {
		return errors.New("there is none: the pods create it when they are ready and can reach their own Service")
	}
	for _, w := range wanted {
		live := named(webhooks(r.live), w["name"])
		if live == nil || !m.o.RulesVary && !covers(live["rules"], w["rules"]) {
			return fmt.Errorf("webhook %v is missing or has other rules than the enabled plugins: the pods have not read them yet, or refuse them", w["name"])
		}
		if err := m.callRegistered(ctx, live, r.desired.tokenAt >= 0); err != nil {
			return fmt.Errorf("webhook %v: %w", w["name"], err)
		}
	}
	return nil
}

// callRegistered calls a webhook as it is registered.
func (m *Manager) callRegistered(ctx context.Context, webhook map[string]any, tokens bool) error {
	cas := parseBundle(bundleOf(webhook))
	if len(cas) == 0 {
		return errors.New("it has no caBundle, so kube-apiserver does not trust the serving certificate")
	}
	e, err := endpointOf(webhook)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	code, configuration, err := m.ask(ctx, e, e.path, cas)
	refused := code == http.StatusUnauthorized || code == http.StatusForbidden
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", e.address, err)
	case refused && tokens:
		return fmt.Errorf("%s: a replica does not take the path token: got %s, want %s", e.address, status(code), status(http.StatusMethodNotAllowed))
	case !refused && code != http.StatusMethodNotAllowed: // refused is right: only kube-apiserver has the credentials
		return fmt.Errorf("%s: got %s, want %s to a GET, as fastadmit answers", e.address, status(code), status(http.StatusMethodNotAllowed))
	}
	if !refused && m.o.Configuration != "" && configuration != m.o.Configuration {
		return fmt.Errorf("%s: a replica has not read the configuration yet, or refuses it: got %.12q, want %.12q", e.address, configuration, m.o.Configuration)
	}
	return nil
}

func named(all []map[string]any, name any) map[string]any {
	for _, w := range all {
		if w["name"] == name {
			return w
		}
	}
	return nil
}

// covers reports whether got has all members of want: kube-apiserver adds defaults.
func covers(got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		in, _ := got.(map[string]any)
		for name := range want {
			if !covers(in[name], want[name]) {
				return false
			}
		}
		return true
	case []any:
		in, _ := got.([]any)
		if len(in) != len(want) {
			return false
		}
		for i := range want {
			if !covers(in[i], want[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(got, want)
}
