package certs

import (
	"context"
	"crypto/x509"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// owned returns the paths of the fields that a manager owns.
func (s *stand) owned(resource, manager string) []string {
	s.t.Helper()
	object, err := s.get(resource, "fastadmit.io")
	if err != nil {
		s.t.Fatal(err)
	}
	var paths []string
	if versioned := object.fields[manager]; versioned != nil {
		versioned.Set().Iterate(func(p fieldpath.Path) { paths = append(paths, p.String()) })
	}
	slices.Sort(paths)
	return paths
}

func (s *stand) named() Options {
	o := s.options()
	o.Configurations = nil
	o.MutatingWebhookConfigurations = []string{"fastadmit.io"}
	o.ValidatingWebhookConfigurations = []string{"fastadmit.io"}
	return o
}

// TestOthersConfigurations has configurations of a chart, of which only the bundles are
// managed, while the chart creates, changes and removes them.
func TestOthersConfigurations(t *testing.T) {
	inStand(t, func(s *stand) {
		s.startRegistered(2, s.named())
		if s.webhooks(mutating.resource) != nil {
			t.Fatal("a configuration was made that is the chart's to make")
		}
		if err := s.applyAs("helm", false, configurations("a", "b")...); err != nil {
			t.Fatal(err)
		}
		s.settle(2 * time.Second)
		kept := func() {
			t.Helper()
			for _, kind := range configurationKinds {
				if got := s.webhooks(kind.resource); len(got) == 0 {
					t.Errorf("there are no webhooks in the %s", kind.kind)
				}
			}
			if !equal(s.registered(), s.ca()) {
				t.Errorf("got %d CAs in the bundles, want the CA", len(s.registered()))
			}
		}
		kept()
		want := []string{
			`.webhooks[name="a.fastadmit.io"]`, `.webhooks[name="a.fastadmit.io"].clientConfig.caBundle`,
			`.webhooks[name="a.fastadmit.io"].name`,
			`.webhooks[name="b.fastadmit.io"]`, `.webhooks[name="b.fastadmit.io"].clientConfig.caBundle`,
			`.webhooks[name="b.fastadmit.io"].name`,
		}
		for _, kind := range configurationKinds {
			if got := s.owned(kind.resource, bundleManager); !slices.Equal(got, want) {
				t.Errorf("got fields %q, want %q", got, want)
			}
		}

		// The chart is applied again, with one more configuration, and without the field.
		if err := s.applyAs("helm", false, configurations("a", "b", "c")...); err != nil {
			t.Errorf("the chart cannot be applied again: %v", err)
		}
		s.settle(2 * time.Second)
		kept()

		// The chart is applied with the field: after a conflict, both sides write it until
		// it is right.
		other := configurations("a", "b", "c")
		setAll(other, secretData(t, time.Hour, time.Hour, "a")[caCertificates])
		if err := s.applyAs("helm", false, other...); err == nil {
			t.Error("the field can be taken without force")
		}
		for range 2 {
			if err := s.applyAs("helm", true, other...); err != nil {
				t.Error(err)
			}
			s.settle(2 * time.Second)
			if got := s.registered(); len(got) != 2 || !got[0].Equal(s.ca()) {
				t.Errorf("got %d CAs in the bundles, want ours and the other one for a while", len(got))
			}
			s.settle(resync + 2*DefaultPropagation)
			kept()
		}

		// A user empties the field with kubectl replace.
		setAll(other, nil)
		for i, kind := range configurationKinds {
			s.remove(kind.resource, "fastadmit.io")
			s.create(kind.resource, other[i])
		}
		s.settle(2 * time.Second)
		kept()

		for _, kind := range configurationKinds {
			s.remove(kind.resource, "fastadmit.io")
		}
		s.settle(5 * time.Minute)
		if s.webhooks(mutating.resource) != nil {
			t.Error("a configuration is back that the chart removed")
		}
		for _, r := range s.replicas {
			if err := r.ready(); err != nil {
				t.Error(err)
			}
			if got := r.log.lines("level=WARN"); got != nil {
				t.Errorf("got %q, want no warnings", got)
			}
		}
	})
}

// TestOthersWebhooks has webhooks for other servers in the configurations, which are not
// changed. If none is for fastadmit, the error says so.
func TestOthersWebhooks(t *testing.T) {
	inStand(t, func(s *stand) {
		s.startRegistered(1, s.named())
		r := s.replicas[0]
		theirs, elsewhere := secretData(t, time.Hour, time.Hour, "a")[caCertificates],
			&admissionregistrationv1.ServiceReference{Namespace: "a", Name: "b"}
		objects := configurations("a", "b")
		m := objects[0].(*admissionregistrationv1.MutatingWebhookConfiguration)
		v := objects[1].(*admissionregistrationv1.ValidatingWebhookConfiguration)
		m.Webhooks[1].ClientConfig = admissionregistrationv1.WebhookClientConfig{Service: elsewhere, CABundle: theirs}
		v.Webhooks[0].ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: new("https://b.example.com"), CABundle: theirs}
		if err := s.applyAs("helm", false, objects...); err != nil {
			t.Fatal(err)
		}
		s.settle(2 * time.Second)
		f := func(resource, name string, want []*x509.Certificate) {
			t.Helper()
			if got := parseBundle(s.webhooks(resource)[name+".fastadmit.io"].ClientConfig.CABundle); !equal(got, want...) {
				t.Errorf("%s %s: got %d CAs, want others", resource, name, len(got))
			}
		}
		f(mutating.resource, "a", []*x509.Certificate{s.ca()})
		f(mutating.resource, "b", parseBundle(theirs))
		f(validating.resource, "a", parseBundle(theirs))
		f(validating.resource, "b", []*x509.Certificate{s.ca()})
		if err := r.ready(); err != nil || r.metric(`fastadmit_certificate_expiry_timestamp_seconds{resource="registered"}`) == "0" {
			t.Errorf("got %v, want what is served to be trusted by our bundles", err)
		}
		if got := s.owned(mutating.resource, bundleManager); len(got) != 3 || strings.Contains(strings.Join(got, " "), "b.fastadmit.io") {
			t.Errorf("got fields %q, want those of one webhook", got)
		}
		if got := r.log.lines("level=WARN"); got != nil {
			t.Errorf("got %q, want no warnings", got)
		}

		v.Webhooks = v.Webhooks[:1]
		s.remove(validating.resource, "fastadmit.io")
		s.create(validating.resource, v)
		s.settle(2 * time.Second)
		f(validating.resource, "a", parseBundle(theirs))
		const want = `none of its webhooks calls [\"fastadmit.fastadmit.svc\"]`
		if got := r.log.lines("level=WARN"); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("got %q, want %s once", got, want)
		}
		if err := r.ready(); err != nil {
			t.Error(err)
		}
	})
}

// TestVersions has replicas of two versions, which want different webhooks, at the same
// time.
func TestVersions(t *testing.T) {
	inStand(t, func(s *stand) {
		s.startRegistered(2, s.options())
		newer := s.options()
		newer.Configurations = configurations("b", "c")
		s.start(newer)
		s.settle(20 * time.Second)
		check := func(when string, want ...string) {
			t.Helper()
			for _, kind := range configurationKinds {
				var names []string
				for name := range s.webhooks(kind.resource) {
					names = append(names, strings.TrimSuffix(name, ".fastadmit.io"))
				}
				slices.Sort(names)
				if !slices.Equal(names, want) {
					t.Errorf("%s: got webhooks %q, want %q", when, names, want)
				}
			}
		}
		check("after the newer one started", "b", "c")

		// The older replicas repair only bundles.
		s.replicas[2].stop()
		setBundles := configurations("b", "c")
		setAll(setBundles, []byte("garbage"))
		if err := s.applyAs("human", true, setBundles...); err != nil {
			t.Fatal(err)
		}
		s.settle(5 * time.Second)
		check("after a repair by older ones", "b", "c")
		if !equal(s.registered(), s.ca()) {
			t.Error("the bundles are not repaired")
		}
		for _, kind := range configurationKinds {
			object, err := s.get(kind.resource, "fastadmit.io")
			if err != nil || len(object.GetOwnerReferences()) != 1 {
				t.Errorf("got %v, %v, want its owner", object.GetOwnerReferences(), err)
			}
		}

		// A field that the user owns does not change until the user gives it up.
		if err := s.applyAs("human", true, configurations()...); err != nil {
			t.Fatal(err)
		}
		r := s.replicas[0]
		if err := r.SetConfigurations(configurations("d")); err != nil {
			t.Fatal(err)
		}
		s.settle(5 * time.Second)
		check("after a replica was told so", "d")
		if err := r.SetConfigurations(configurations()); err != nil {
			t.Fatal(err)
		}
		s.settle(5 * time.Second)
		check("after none is wanted")
		if err := r.ready(); err != nil {
			t.Error(err)
		}
		for _, wrong := range [][]runtime.Object{nil, configurations("a")[:1], append(configurations("a"), configurations("a")...)} {
			if err := r.SetConfigurations(wrong); err == nil {
				t.Errorf("%d configurations instead of two were taken", len(wrong))
			}
		}
	})
}

// TestNoWebhooks has nothing to register.
func TestNoWebhooks(t *testing.T) {
	inStand(t, func(s *stand) {
		o := s.options()
		o.Configurations = configurations()
		s.startRegistered(1, o)
		if got := s.count("create", mutating.resource); got != 0 {
			t.Errorf("got %d configurations without webhooks, want none", got)
		}
	})
}

func TestOptions(t *testing.T) {
	good := func() Options {
		return Options{
			Config: &rest.Config{Host: "http://127.0.0.1:1"}, SecretNamespace: "n", SecretName: "s",
			Hosts: []string{serviceHost, "192.0.2.1"},
		}
	}
	f := func(change func(o *Options), want string) {
		t.Helper()
		o := good()
		change(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "certificates: ") {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	if _, err := New(good()); err != nil {
		t.Fatal(err)
	}
	f(func(o *Options) { o.Config = nil }, "there is no Config")
	f(func(o *Options) { o.Config = &rest.Config{Host: "::"} }, "cannot create a client")
	f(func(o *Options) { o.SecretName = "" }, `got Secret "" in namespace "n", want both names`)
	f(func(o *Options) { o.SecretNamespace = "" }, `got Secret "s" in namespace "", want both names`)
	f(func(o *Options) { o.Hosts = nil }, `got Hosts []`)
	f(func(o *Options) { o.Hosts = []string{""} }, `got Hosts [""]`)
	f(func(o *Options) { o.Propagation = -1 }, "Propagation -1ns")
	f(func(o *Options) { o.LeafLife = 6*time.Minute - 1 }, "want a third of each life to be twice Propagation")
	f(func(o *Options) { o.CALife = -time.Hour }, "got lives -1h0m0s and ")
	f(func(o *Options) { o.Configurations = []runtime.Object{&corev1.Secret{}} }, `got   "", want a named MutatingWebhookConfiguration or`)
	f(func(o *Options) { o.Configurations = append(configurations("a"), configurations("a")...) },
		`MutatingWebhookConfiguration "fastadmit.io" is named more than once`)
	f(func(o *Options) {
		o.Configurations, o.ValidatingWebhookConfigurations = configurations("a"), []string{"fastadmit.io"}
	}, `ValidatingWebhookConfiguration "fastadmit.io" is named more than once`)
	to := func(c admissionregistrationv1.WebhookClientConfig) func(o *Options) {
		return func(o *Options) {
			o.Configurations = configurations("a")[1:]
			o.Configurations[0].(*admissionregistrationv1.ValidatingWebhookConfiguration).Webhooks[0].ClientConfig = c
		}
	}
	f(to(admissionregistrationv1.WebhookClientConfig{}), `webhook "a.fastadmit.io": it has neither a url nor a service`)
	f(to(admissionregistrationv1.WebhookClientConfig{URL: new("https://[")}), `missing ']' in host`)
	f(to(admissionregistrationv1.WebhookClientConfig{URL: new("https://elsewhere")}), `it is called as "elsewhere", which is none of Hosts`)
}

func TestEndpoints(t *testing.T) {
	f := func(c admissionregistrationv1.WebhookClientConfig, want endpoint) {
		t.Helper()
		o := Options{Hosts: []string{want.host}}
		object := configurations("a", "b")[1].(*admissionregistrationv1.ValidatingWebhookConfiguration)
		for i := range object.Webhooks {
			object.Webhooks[i].ClientConfig = c
		}
		got, err := o.configurations([]runtime.Object{object})
		if err != nil || !reflect.DeepEqual(got[0].endpoints, []endpoint{want}) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	f(admissionregistrationv1.WebhookClientConfig{URL: new("https://a.example.com/x")},
		endpoint{"a.example.com:443", "a.example.com", "/x", service{}})
	f(admissionregistrationv1.WebhookClientConfig{URL: new("https://[2001:db8::1]:8443")},
		endpoint{"[2001:db8::1]:8443", "2001:db8::1", "", service{}})
	f(admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Name: "a", Namespace: "b"}},
		endpoint{"a.b.svc:443", "a.b.svc", "", service{"b", "a", 443}})
	f(admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Name: "a", Namespace: "b",
		Port: new(int32(8443))}},
		endpoint{"a.b.svc:8443", "a.b.svc", "", service{"b", "a", 8443}})
}

func TestRules(t *testing.T) {
	f := func(change func(o *Options), wantRole, want []rbacv1.PolicyRule) {
		t.Helper()
		o := Options{SecretName: "s", Hosts: []string{serviceHost}}
		change(&o)
		role, clusterRole := o.Rules()
		if !reflect.DeepEqual(role, wantRole) || !reflect.DeepEqual(clusterRole, want) {
			t.Errorf("got\n%v\n%v\nwant\n%v\n%v", role, clusterRole, wantRole, want)
		}
	}
	secrets := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"s"}, Verbs: []string{"get", "watch", "update"}},
	}
	registered := func(resource, name string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{resource},
			ResourceNames: []string{name}, Verbs: verbs}
	}
	getService := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"services"}, ResourceNames: []string{"fastadmit"},
		Verbs: []string{"get"}}
	f(func(*Options) {}, secrets, nil)
	f(func(o *Options) { o.Deployment = "d" }, append(slices.Clone(secrets),
		rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, ResourceNames: []string{"d"},
			Verbs: []string{"get"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create"}}), nil)
	f(func(o *Options) { o.MutatingWebhookConfigurations = []string{"m"} }, secrets,
		[]rbacv1.PolicyRule{registered("mutatingwebhookconfigurations", "m", "get", "watch", "patch")})
	f(func(o *Options) { o.Configurations, o.SecretNamespace = configurations("a", "b")[1:], "elsewhere" }, secrets,
		[]rbacv1.PolicyRule{getService, registered("validatingwebhookconfigurations", "fastadmit.io", "get", "watch", "patch", "create")})
	f(func(o *Options) {
		o.Configurations, o.Owner, o.SecretNamespace = configurations("a"), "owner", "fastadmit"
	}, append(slices.Clone(secrets), getService), []rbacv1.PolicyRule{
		registered("mutatingwebhookconfigurations", "fastadmit.io", "get", "watch", "patch", "create"),
		registered("validatingwebhookconfigurations", "fastadmit.io", "get", "watch", "patch", "create"),
		{APIGroups: []string{"rbac.authorization.k8s.io"}, Resources: []string{"clusterroles"}, ResourceNames: []string{"owner"},
			Verbs: []string{"get"}},
	})
}

// TestReachSaysWhere has the Service lead to another server.
func TestReachSaysWhere(t *testing.T) {
	inStand(t, func(s *stand) {
		s.startRegistered(1, s.options())
		r := s.replicas[0]
		r.cancel()
		s.settle(time.Second)
		r.known.cas = parseBundle(secretData(t, time.Hour, time.Hour, "a")[caCertificates])
		err := r.reach(context.Background(), r.registrations[0].desired)
		if err == nil || !strings.Contains(err.Error(), serviceHost+":443: the certificate that is served is not valid for "+serviceHost) {
			t.Errorf("got %v, want what is wrong", err)
		}
		s.cutOff.Store(true)
		if err := r.reach(context.Background(), r.registrations[0].desired); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want that there are no endpoints", err)
		}
	})
}

// FuzzParse checks that no Secret or bundle causes a panic, and that accepted certificates
// can be served.
func FuzzParse(f *testing.F) {
	now := time.Now()
	ca, signer, err := newAuthority(time.Hour, now)
	if err != nil {
		f.Fatal(err)
	}
	leaf, err := newLeaf(ca, signer, []string{serviceHost}, time.Hour, now)
	if err != nil {
		f.Fatal(err)
	}
	data := make(map[string][]byte)
	if err := (&state{cas: parseBundle(encodeCertificate(ca.Raw)), signer: signer, leaf: leaf}).put(data); err != nil {
		f.Fatal(err)
	}
	f.Add(data[caCertificates], data[caKey], data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	f.Add(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey], data[caCertificates], data[caKey])
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"), []byte{}, []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, ca, key, leaf, leafKey []byte) {
		parseBundle(ca)
		s, err := parseState(map[string][]byte{
			caCertificates: ca, caKey: key, corev1.TLSCertKey: leaf, corev1.TLSPrivateKeyKey: leafKey,
		}, []string{serviceHost}, now)
		if (err == nil) != (s != nil && s.leaf != nil) {
			t.Fatalf("got %v, %v", s, err)
		}
		if err == nil {
			if err := s.put(make(map[string][]byte)); err != nil {
				t.Error(err)
			}
		}
	})
}
