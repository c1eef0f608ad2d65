package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/fastadmit/fastadmit/internal/wake"
)

// Defaults of Options.
const (
	// DefaultCALife means a new CA every eight months, so that it is a routine
	// operation. If the renewal fails, four months remain to repair it.
	DefaultCALife = 365 * 24 * time.Hour
	// DefaultLeafLife is less than a third of DefaultCALife, so the end of the CA's
	// life never shortens that of a leaf.
	DefaultLeafLife = 90 * 24 * time.Hour
	// DefaultPathTokenLife limits how long a leaked path token can be used. If the
	// server cannot be reached, kube-apiserver shows the URL with the token to the
	// user of the request. A new token costs two writes of each webhook
	// configuration.
	DefaultPathTokenLife = 24 * time.Hour
	// DefaultPropagation is longer than the 45 s after which a broken watch is
	// detected; see the package comment.
	DefaultPropagation = time.Minute
)

const (
	// resync is the longest time between two passes: a change that no watch reported is
	// found then.
	resync = time.Minute

	// gatherPause is how long changes are gathered before a pass: one change is several
	// events of the watches.
	gatherPause = 200 * time.Millisecond
)

// retries is the pause after a failed pass. Package cluster waits as long for the API server.
var retries = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 10 * time.Second}

// Options configure a Manager.
type Options struct {
	// Config configures the client of the API server.
	Config *rest.Config

	// SecretNamespace and SecretName are the names of the Secret for the
	// certificates.
	SecretNamespace, SecretName string

	// Hosts are the DNS names and IP addresses of the leaf, such as
	// <service>.<namespace>.svc for a Service.
	Hosts []string

	// Configurations are complete webhook configurations to apply, with apiVersion
	// and kind. The Manager sets caBundle. A configuration without webhooks removes
	// all webhooks from an existing one, and is not created.
	Configurations []runtime.Object

	// MutatingWebhookConfigurations and ValidatingWebhookConfigurations are names of
	// configurations that others create. The Manager only writes the caBundle of
	// webhooks that call one of Hosts. The configurations need not exist yet.
	MutatingWebhookConfigurations, ValidatingWebhookConfigurations []string

	// PathTokens enables path tokens if it is not nil. The Manager creates them and
	// replaces the segment PathTokenPlaceholder in the paths of Configurations. It
	// calls PathTokens with all tokens that the server must accept from then on.
	// bare is true if the server must also accept calls without a token, because a
	// registered webhook has none. The first call is before the first certificate.
	PathTokens func(accepted []string, bare bool)

	// Configuration is the digest of a configuration, as in ConfigurationHeader.
	// AwaitRegistered waits until the server has read this configuration, unless the
	// server refuses the request for missing credentials. Empty means any.
	Configuration string

	// Owner is the name of a ClusterRole. If it is set, it owns Configurations and
	// the Secret: they are deleted with it, and not created without it.
	Owner string

	// Deployment is the name of a Deployment in SecretNamespace. If it is set, the
	// Manager creates Events for it when the registration fails.
	Deployment string
	// RulesVary means that the rules of Configurations depend on objects in the
	// cluster. AwaitRegistered does not compare the rules then.
	RulesVary bool

	// Dial opens connections to the server itself: to the address that is passed to
	// Ready, and to the Service or URL in Configurations. The default is that of a
	// net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// CALife and LeafLife are how long new certificates are valid. Propagation is
	// the time that API servers may need to learn of a new bundle. 0 means the
	// default. A third of each life must be at least twice Propagation.
	CALife, LeafLife, Propagation time.Duration

	// PathTokenLife is the age at which a path token is replaced. 0 means the
	// default. It must be at least eight times Propagation.
	PathTokenLife time.Duration

	Log     *slog.Logger // may be nil
	Metrics *metrics.Set // the set for the metrics of the Manager; may be nil
}

// A Manager manages certificates. Several goroutines may call its methods at the same
// time.
type Manager struct {
	o       Options
	client  *client
	clock   clock
	metrics *managerMetrics
	changed wake.Signal // an object may have changed
	served  atomic.Pointer[tls.Certificate]
	view    atomic.Pointer[view]
	self    selfCheck
	fault   atomic.Pointer[string] // why the last pass could not read or write the Secret
	shown   atomic.Pointer[[]Registration]
	missing atomic.Pointer[string] // the parts of the registration that are missing, nil before the first pass

	mu      sync.Mutex
	desired []*configuration // by SetConfigurations, before a pass takes them over

	// What follows belongs to the goroutine of Run.
	registrations []*registration
	known         *state                 // the last valid content of the Secret
	trusted       map[identity]time.Time // since when a CA is in all bundles
	surplus       map[identity]time.Time // since when a CA in a bundle is not in the Secret
	secretFault   string                 // the current error of the Secret
	tokens        tokens
	reported      reported
	addresses     map[service]string // addresses of Services found in this pass
	wake          time.Time          // when the next pass begins at the latest
}

// New returns a Manager. It sends no requests before Run. The error says which option is
// invalid.
func New(o Options) (*Manager, error) {
	o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("certificates: %w", err)
	}
	m := &Manager{
		o: o, changed: wake.NewSignal(),
		trusted: make(map[identity]time.Time), surplus: make(map[identity]time.Time),
		tokens: tokens{accepted: make(map[string]time.Time)}, addresses: make(map[service]string),
		clock: clock{machine: time.Now, log: o.Log},
	}
	configurations, err := m.o.configurations(o.Configurations)
	if err != nil {
		return nil, fmt.Errorf("certificates: %w", err)
	}
	for _, c := range configurations {
		m.registrations = append(m.registrations, &registration{kind: c.kind, name: c.name, complete: true, desired: c})
	}
	for _, kind := range configurationKinds {
		for _, name := range o.existing(kind) {
			m.registrations = append(m.registrations, &registration{kind: kind, name: name})
		}
	}
	if m.client, err = newClient(o.Config, &m.clock); err != nil {
		return nil, fmt.Errorf("certificates: %w", err)
	}
	m.metrics = newMetrics(m)
	return m, nil
}

func (o *Options) withDefaults() {
	for _, d := range []struct {
		option *time.Duration
		value  time.Duration
	}{{&o.CALife, DefaultCALife}, {&o.LeafLife, DefaultLeafLife}, {&o.PathTokenLife, DefaultPathTokenLife}, {&o.Propagation, DefaultPropagation}} {
		if *d.option == 0 {
			*d.option = d.value
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = metrics.NewSet()
	}
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
}

func (o *Options) validate() error {
	switch life := min(o.CALife, o.LeafLife); {
	case o.Config == nil:
		return errors.New("there is no Config for the API server")
	case o.SecretNamespace == "" || o.SecretName == "":
		return fmt.Errorf("got Secret %q in namespace %q, want both names", o.SecretName, o.SecretNamespace)
	case len(o.Hosts) == 0 || slices.Contains(o.Hosts, ""):
		return fmt.Errorf("got Hosts %q, want the names by which kube-apiserver calls the server", o.Hosts)
	case o.PathTokens != nil && len(o.Configurations) == 0:
		return errors.New("got PathTokens without Configurations, want paths to put tokens into")
	case o.PathTokens != nil && o.PathTokenLife < 8*o.Propagation:
		return fmt.Errorf("got PathTokenLife %s and Propagation %s, want eight times Propagation: a change takes five", o.PathTokenLife, o.Propagation)
	case o.Propagation < 0 || life/3 < 2*o.Propagation:
		return fmt.Errorf("got lives %s and %s and Propagation %s, want a third of each life to be twice Propagation, 0s or more",
			o.CALife, o.LeafLife, o.Propagation)
	}
	return nil
}

// Run manages the certificates until ctx ends. Call it once. After that, Certificate
// returns the last certificate.
func (m *Manager) Run(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { m.listen(ctx, secretsPath(m.o.SecretNamespace), m.o.SecretName) })
	for _, r := range m.registrations {
		watching.Go(func() { m.listen(ctx, r.kind.path, r.name) })
	}
	backoff := retries
	for ctx.Err() == nil {
		m.wake = time.Now().Add(resync)
		if m.pass(ctx) {
			backoff = retries
		} else {
			m.wakeBy(time.Now().Add(backoff.Step()))
		}
		m.changed.Wait(ctx, time.Until(m.wake), gatherPause)
	}
}

// wakeBy makes the next pass begin at t at the latest.
func (m *Manager) wakeBy(t time.Time) {
	if t.Before(m.wake) {
		m.wake = t
	}
}

// wakeAtDate makes the next pass begin at a date at the latest.
func (m *Manager) wakeAtDate(date time.Time) { m.wakeBy(time.Now().Add(date.Sub(m.clock.now()))) }

// Certificate returns the serving certificate, for tls.Config.GetCertificate. It returns
// an error if there is none yet.
func (m *Manager) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if pair := m.served.Load(); pair != nil {
		return pair, nil
	}
	return nil, errors.New("certificates: none yet")
}

// SetConfigurations replaces Options.Configurations. Run applies those that differ. The
// kinds and names must be those of Options.Configurations. If SetConfigurations returns an
// error, nothing was replaced.
func (m *Manager) SetConfigurations(configurations []runtime.Object) error {
	desired, err := m.o.configurations(configurations)
	if err != nil {
		return fmt.Errorf("certificates: %w", err)
	}
	replaced := 0
	for _, r := range m.registrations {
		if r.complete && r.in(desired) != nil {
			replaced++
		} else if r.complete {
			return fmt.Errorf("certificates: got no %s %q, which existed at the start", r.kind.kind, r.name)
		}
	}
	if replaced != len(desired) {
		return fmt.Errorf("certificates: got %d webhook configurations, want the %d that existed at the start", len(desired), replaced)
	}
	m.mu.Lock()
	m.desired = desired
	m.mu.Unlock()
	m.changed.Send()
	return nil
}

// pass reads the Secret and all configurations, and corrects what is not right. It reports
// whether nothing failed. After ctx has ended, it records no failure: that requests fail then
// says nothing about the certificates.
func (m *Manager) pass(ctx context.Context) bool {
	m.takeDesired()
	clear(m.addresses)
	for _, r := range m.registrations {
		r.err = m.read(ctx, r)
	}
	err := m.reconcileSecret(ctx)
	if m.known != nil && m.heard() {
		m.acceptTokens(time.Now())
		m.awaitToken(ctx)
		for _, r := range m.registrations {
			if r.err == nil {
				r.err = m.reconcile(ctx, r)
			}
		}
		m.observe(time.Now())
		m.serve(m.clock.now())
		m.view.Store(&view{m.known.cas, m.bundles()})
	}
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		m.fault.Store(new(m.redact(err.Error())))
	} else if !m.heard() {
		for _, r := range m.registrations {
			if r.err != nil {
				m.fault.Store(new(m.redact(r.err.Error())))
			}
		}
	}
	ok := m.tried(secretResource, &m.secretFault, err)
	for _, r := range m.registrations {
		ok = m.tried(registeredResource, &r.fault, r.err) && ok
	}
	m.report(ctx, time.Now())
	return ok
}

func (m *Manager) takeDesired() {
	m.mu.Lock()
	desired := m.desired
	m.desired = nil
	m.mu.Unlock()
	for _, r := range m.registrations {
		if c := r.in(desired); c != nil && !reflect.DeepEqual(c, r.desired) {
			r.desired, r.applied = c, false
		}
	}
}

// observe records since when each CA of the Secret is in all bundles. If there are no bundles,
// that is the zero time.
func (m *Manager) observe(now time.Time) {
	bundles := m.bundles()
	for id := range m.surplus {
		if !slices.ContainsFunc(bundles, func(bundle []*x509.Certificate) bool { return slices.ContainsFunc(bundle, id.is) }) {
			delete(m.surplus, id)
		}
	}
	unread := slices.ContainsFunc(m.registrations, func(r *registration) bool { return !r.known })
	trusted := make(map[identity]time.Time)
	for _, ca := range m.known.cas {
		id := identify(ca)
		since, before := m.trusted[id]
		switch {
		case unread || !inAll(ca, bundles):
			continue
		case len(bundles) == 0:
			since = time.Time{}
		case !before:
			since = now
		}
		trusted[id] = since
		if at := since.Add(m.o.Propagation); now.Before(at) {
			m.wakeBy(at)
		}
	}
	m.trusted = trusted
}

// settled reports whether all API servers can be expected to trust the CA.
func (m *Manager) settled(ca *x509.Certificate) bool {
	since, ok := m.trusted[identify(ca)]
	return ok && !time.Now().Before(since.Add(m.o.Propagation))
}

// serve decides what is served: the leaf in the Secret, unless it is of another
// CA than the one that is served, too early for that, and the latter is good.
func (m *Manager) serve(now time.Time) {
	next, current := m.known.leaf, m.served.Load()
	if next == nil || current != nil && current.Leaf.Equal(next.Leaf) {
		return
	}
	if current != nil {
		_, otherCA := verify(current, []*x509.Certificate{m.known.issuer}, now)
		if otherCA != nil && !m.settled(m.known.issuer) && m.usable(current, now) {
			m.wakeAtDate(current.Leaf.NotAfter)
			return
		}
		m.o.Log.Info("serving a new certificate", "expires", next.Leaf.NotAfter)
	}
	m.served.Store(next)
}

// usable reports whether all bundles verify the leaf.
func (m *Manager) usable(pair *tls.Certificate, now time.Time) bool {
	for _, bundle := range m.bundles() {
		if _, err := verify(pair, bundle, now); err != nil {
			return false
		}
	}
	return now.Before(pair.Leaf.NotAfter)
}
