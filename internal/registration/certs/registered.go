package certs

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
)

const (
	configurationVersion = "admissionregistration.k8s.io/v1"

	// completeManager owns the fields of configurations that the Manager makes,
	// bundleManager the caBundles in configurations of others.
	completeManager = "fastadmit"
	bundleManager   = "fastadmit-certs"

	// surplusMax is how many CAs that are not in the Secret may stay in a bundle for a
	// while. Another replica may serve a certificate of such a CA. A bundle with many of
	// them is that of a whole system.
	surplusMax = 8

	// servicePort is the port of a service that names none
	// (k8s.io/api/admissionregistration/v1 ServiceReference).
	servicePort = 443
)

// A configurationKind is one of the two kinds of webhook configurations.
type configurationKind struct{ kind, resource, path string }

var (
	mutating = &configurationKind{"MutatingWebhookConfiguration", "mutatingwebhookconfigurations",
		"/apis/" + configurationVersion + "/mutatingwebhookconfigurations"}
	validating = &configurationKind{"ValidatingWebhookConfiguration", "validatingwebhookconfigurations",
		"/apis/" + configurationVersion + "/validatingwebhookconfigurations"}
	configurationKinds = [...]*configurationKind{mutating, validating}
)

// existing returns the names of the configurations of a kind that others make.
func (o *Options) existing(kind *configurationKind) []string {
	if kind == mutating {
		return slices.Clone(o.MutatingWebhookConfigurations)
	}
	return slices.Clone(o.ValidatingWebhookConfigurations)
}

// A configuration is one to apply as a whole.
type configuration struct {
	kind      *configurationKind
	name      string
	object    *unstructured.Unstructured
	endpoints []endpoint // by which kube-apiserver calls its webhooks
	tokenAt   int        // the index of the path token among the segments of paths, negative if there is none
}

// An endpoint is where kube-apiserver connects to, whom it expects, and a path
// that it calls.
type endpoint struct {
	address, host, path string
	service             service // of which address is the DNS name, and which dial resolves; zero for a URL
}

// configurations reads and checks Options.Configurations.
func (o *Options) configurations(objects []runtime.Object) (all []*configuration, err error) {
	for _, object := range objects {
		text, err := json.Marshal(object)
		if err != nil {
			return nil, fmt.Errorf("cannot encode a webhook configuration: %w", err)
		}
		c := &configuration{object: new(unstructured.Unstructured)}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &c.object.Object); err != nil {
			return nil, fmt.Errorf("cannot decode a webhook configuration: %w", err)
		}
		for _, kind := range configurationKinds {
			if c.object.GetAPIVersion() == configurationVersion && c.object.GetKind() == kind.kind {
				c.kind = kind
			}
		}
		if c.name = c.object.GetName(); c.kind == nil || c.name == "" {
			return nil, fmt.Errorf("got %s %s %q, want a named %s or %s of %s", c.object.GetAPIVersion(), c.object.GetKind(), c.name,
				mutating.kind, validating.kind, configurationVersion)
		}
		if slices.Contains(o.existing(c.kind), c.name) || slices.ContainsFunc(all, func(b *configuration) bool { return b.kind == c.kind && b.name == c.name }) {
			return nil, fmt.Errorf("%s %q is named more than once", c.kind.kind, c.name)
		}
		if err := o.takePlaceholder(c); err != nil {
			return nil, fmt.Errorf("%s %q: %w", c.kind.kind, c.name, err)
		}
		if c.endpoints, err = o.endpoints(c); err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// endpoints returns the endpoints of the webhooks, each once. The error means that the leaf
// will not be valid for one of them.
func (o *Options) endpoints(c *configuration) (all []endpoint, err error) {
	for _, w := range webhooks(c.object) {
		e, err := endpointOf(w)
		if err == nil && !slices.Contains(o.Hosts, e.host) {
			err = fmt.Errorf("it is called as %q, which is none of Hosts %q", e.host, o.Hosts)
		}
		if err != nil {
			return nil, fmt.Errorf("%s %q: webhook %q: %w", c.kind.kind, c.name, w["name"], err)
		}
		if !slices.ContainsFunc(all, func(other endpoint) bool { return other.address == e.address && other.host == e.host }) {
			all = append(all, e)
		}
	}
	return all, nil
}

func endpointOf(webhook map[string]any) (endpoint, error) {
	if at, ok, _ := unstructured.NestedString(webhook, "clientConfig", "url"); ok {
		u, err := url.Parse(at)
		if err != nil {
			return endpoint{}, err
		}
		port := u.Port()
		if port == "" {
			port = "443"
		}
		return endpoint{address: net.JoinHostPort(u.Hostname(), port), host: u.Hostname(), path: pathOf(webhook)}, nil
	}
	name, _, _ := unstructured.NestedString(webhook, "clientConfig", "service", "name")
	namespace, _, _ := unstructured.NestedString(webhook, "clientConfig", "service", "namespace")
	if name == "" || namespace == "" {
		return endpoint{}, errors.New("it has neither a url nor a service with name and namespace")
	}
	s := service{namespace, name, servicePort}
	if port, ok, _ := unstructured.NestedFieldNoCopy(webhook, "clientConfig", "service", "port"); ok {
		number, err := strconv.ParseUint(fmt.Sprint(port), 10, 16)
		if err != nil {
			return endpoint{}, fmt.Errorf("clientConfig.service.port: got %v, want a port", port)
		}
		s.port = int32(number)
	}
	host := name + "." + namespace + ".svc"
	return endpoint{net.JoinHostPort(host, strconv.Itoa(int(s.port))), host, pathOf(webhook), s}, nil
}

// A registration is a webhook configuration whose caBundles the Manager sets.
type registration struct {
	kind     *configurationKind
	name     string
	complete bool // the Manager makes all of it, not only the bundles

	// What follows belongs to the goroutine of Run.
	desired *configuration             // nil if it is not complete
	applied bool                       // whether desired was applied
	known   bool                       // whether it was read
	live    *unstructured.Unstructured // as read last, nil if it did not exist
	err     error                      // of this pass
	fault   string                     // the current error
}

// in returns the desired configuration of the registration.
func (r *registration) in(desired []*configuration) *configuration {
	for _, c := range desired {
		if r.complete && c.kind == r.kind && c.name == r.name {
			return c
		}
	}
	return nil
}

// webhooks returns the webhooks of a configuration, to read and to change.
func webhooks(object *unstructured.Unstructured) (all []map[string]any) {
	if object == nil {
		return nil
	}
	list, _ := object.Object["webhooks"].([]any)
	for _, item := range list {
		if w, ok := item.(map[string]any); ok {
			all = append(all, w)
		}
	}
	return all
}

// ours returns the webhooks whose caBundle the Manager sets. In configurations of others,
// these are the webhooks that call this server.
func (m *Manager) ours(r *registration, object *unstructured.Unstructured) []map[string]any {
	if r.complete {
		return webhooks(object)
	}
	return slices.DeleteFunc(webhooks(object), func(w map[string]any) bool {
		e, err := endpointOf(w)
		return err != nil || !slices.Contains(m.o.Hosts, e.host)
	})
}

// bundleOf returns a webhook's caBundle.
func bundleOf(webhook map[string]any) []byte {
	text, _, _ := unstructured.NestedString(webhook, "clientConfig", "caBundle")
	bundle, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil // the API server refuses such a caBundle
	}
	return bundle
}

// bundles returns the registered caBundle of each webhook.
func (m *Manager) bundles() (all [][]*x509.Certificate) {
	for _, r := range m.registrations {
		for _, w := range m.ours(r, r.live) {
			all = append(all, parseBundle(bundleOf(w)))
		}
	}
	return all
}

// bundle returns the caBundle that replaces have, the current one: the CAs of the Secret, and
// for a while the other CAs of have.
func (m *Manager) bundle(have []byte, now time.Time) []byte {
	cas := slices.Clone(m.known.cas)
	for _, ca := range parseBundle(have) {
		if slices.ContainsFunc(cas, ca.Equal) || !m.clock.now().Before(ca.NotAfter) || len(cas)-len(m.known.cas) == surplusMax {
			continue
		}
		id := identify(ca)
		since, before := m.surplus[id]
		if !before {
			since = now
			m.surplus[id] = now
		}
		// A replica reads the Secret within resync and then waits for Propagation. The
		// second Propagation is a margin.
		if until := since.Add(resync + 2*m.o.Propagation); now.Before(until) {
			m.wakeBy(until)
			cas = append(cas, ca)
		}
	}
	return encodeBundle(cas)
}

// read reads the configuration.
func (m *Manager) read(ctx context.Context, r *registration) error {
	text, err := m.client.get(ctx, r.kind.path, r.name)
	if err == nil {
		err = r.note(text)
	}
	if err != nil {
		return fmt.Errorf("cannot read %s %s: %w", r.kind.kind, r.name, err)
	}
	return nil
}

// note stores the answer of the API server.
func (r *registration) note(text []byte) error {
	var live *unstructured.Unstructured
	if text != nil {
		live = new(unstructured.Unstructured)
		if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &live.Object); err != nil {
			return err
		}
	}
	r.known, r.live = true, live
	return nil
}

// reconcile applies the configuration if it is not as desired.
func (m *Manager) reconcile(ctx context.Context, r *registration) error {
	var unreached error
	if r.complete && (!r.applied || r.live == nil) {
		if unreached = m.reach(ctx, r.desired); unreached == nil {
			return m.applyComplete(ctx, r)
		}
	}
	if err := m.applyBundles(ctx, r); err != nil {
		return err
	}
	return unreached
}

// applyComplete applies the desired configuration.
func (m *Manager) applyComplete(ctx context.Context, r *registration) error {
	object := r.desired.object.DeepCopy()
	hooks := webhooks(object)
	if r.live == nil && len(hooks) == 0 {
		return nil
	}
	owners, err := m.owners(ctx)
	if err != nil {
		return err
	}
	object.SetOwnerReferences(owners)
	for _, w := range hooks {
		var have []byte
		for _, l := range webhooks(r.live) {
			if l["name"] == w["name"] {
				have = bundleOf(l)
			}
		}
		if err := errors.Join(setBundle(w, m.bundle(have, time.Now())), m.setToken(w)); err != nil {
			return err
		}
	}
	r.applied, err = m.apply(ctx, r, completeManager, object)
	return err
}

// applyBundles corrects the caBundles of the existing configuration.
func (m *Manager) applyBundles(ctx context.Context, r *registration) error {
	if r.live == nil {
		return nil // the watch will report it
	}
	object := r.live.DeepCopy()
	hooks, current := m.ours(r, object), true
	if len(hooks) == 0 && len(webhooks(object)) > 0 {
		return fmt.Errorf("%s %s: none of its webhooks calls %q", r.kind.kind, r.name, m.o.Hosts)
	}
	for _, w := range hooks {
		have := bundleOf(w)
		want := m.bundle(have, time.Now())
		if bytes.Equal(have, want) && (!r.complete || !m.otherToken(w)) {
			continue
		}
		current = false
		if err := setBundle(w, want); err != nil {
			return err
		}
		if r.complete {
			if err := m.setToken(w); err != nil {
				return err
			}
		}
	}
	if current {
		return nil
	}
	if r.complete {
		for _, field := range []string{"managedFields", "creationTimestamp", "generation", "uid"} {
			unstructured.RemoveNestedField(object.Object, "metadata", field)
		}
		_, err := m.apply(ctx, r, completeManager, object)
		return err
	}
	_, err := m.apply(ctx, r, bundleManager, onlyBundles(object, hooks))
	return err
}

// onlyBundles returns an object with the caBundles of hooks only. It has the resource version of
// the object, so that applying it does not create a configuration again that was deleted.
func onlyBundles(object *unstructured.Unstructured, hooks []map[string]any) *unstructured.Unstructured {
	var bundles []any
	for _, w := range hooks {
		bundles = append(bundles, map[string]any{
			"name":         w["name"],
			"clientConfig": map[string]any{"caBundle": base64.StdEncoding.EncodeToString(bundleOf(w))},
		})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": object.GetAPIVersion(),
		"kind":       object.GetKind(),
		"metadata":   map[string]any{"name": object.GetName(), "resourceVersion": object.GetResourceVersion()},
		"webhooks":   bundles,
	}}
}

func setBundle(webhook map[string]any, bundle []byte) error {
	return unstructured.SetNestedField(webhook, base64.StdEncoding.EncodeToString(bundle), "clientConfig", "caBundle")
}

// apply applies the configuration and stores the result. It reports whether it did. If there is
// a conflict with another writer, the next pass tries again.
func (m *Manager) apply(ctx context.Context, r *registration, manager string, object *unstructured.Unstructured) (bool, error) {
	text, err := json.Marshal(object.Object)
	if err == nil {
		text, err = m.client.apply(ctx, r.kind.path, r.name, manager, text)
	}
	if apierrors.IsConflict(err) {
		m.changed.Send()
		return false, nil
	}
	if err == nil {
		err = r.note(text)
	}
	if err != nil {
		return false, fmt.Errorf("cannot apply %s %s: %w", r.kind.kind, r.name, err)
	}
	m.metrics.renewals[registeredResource].Inc()
	m.o.Log.Info("applied a webhook configuration", "kind", r.kind.kind, "name", r.name, "as", manager)
	return true, nil
}
