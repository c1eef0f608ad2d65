package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/VictoriaMetrics/metrics"
	"github.com/spf13/pflag"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/internal/files"
	"github.com/fastadmit/fastadmit/internal/registration/certs"
)

// managed says that fastadmit keeps its certificates in a Secret, and registers
// itself or has kube-apiserver trust it where others registered it.
type managed struct {
	secretName, secretNamespace, owner string
	deployment                         string   // whose Events say that registration fails
	registered                         []string // by others, each mutating/<name> or validating/<name>
	pathToken                          bool     // make a path token, unless callers are known otherwise

	manager *certs.Manager // nil if it does not
	last    selected       // what was registered last
}

func (m *managed) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&m.secretName, "cert-secret-name", "",
		"Secret for certificates, shared by all replicas; fastadmit issues and renews them, and registers the webhook configurations")
	flags.StringVar(&m.secretNamespace, "cert-secret-namespace", "", "namespace of --cert-secret-name; if empty, the pod's namespace")
	flags.StringVar(&m.owner, "webhook-owner", "", "ClusterRole that owns the webhook configurations and the Secret, so that they are deleted with it")
	flags.StringVar(&m.deployment, "event-deployment", "",
		"Deployment, in the namespace of the Secret, that gets an Event if the registration fails; if empty, no Events")
	flags.StringSliceVar(&m.registered, "webhook-configurations", nil,
		"webhook configurations that you apply, as mutating/<name> or validating/<name>: fastadmit only sets the caBundle of its webhooks in them, and creates none")
	flags.BoolVar(&m.pathToken, "managed-path-token", true,
		"if fastadmit registers itself and no other flag authenticates callers: generate a path token, keep it in --cert-secret-name, register it, and refuse calls without it")
}

// makesPathToken reports whether managed registration is how callers are known.
func (m *managed) makesPathToken(c *callers) bool {
	return m.pathToken && m.secretName != "" && len(m.registered) == 0 && !c.asksOtherwise() && c.pathTokenFile == ""
}

// others returns the names in --webhook-configurations, by kind. The error says
// what is wrong with them.
func (m *managed) others() (mutating, validating []string, err error) {
	for i, configuration := range m.registered {
		kind, name, _ := strings.Cut(configuration, "/")
		switch {
		case len(validation.IsDNS1123Subdomain(name)) > 0 || kind != "mutating" && kind != "validating":
			return nil, nil, fmt.Errorf("--webhook-configurations: got %q, want mutating/<name> or validating/<name>", configuration)
		case slices.Contains(m.registered[:i], configuration):
			return nil, nil, fmt.Errorf("--webhook-configurations: got %s twice", configuration)
		case m.secretName == "":
			return nil, nil, errors.New("--webhook-configurations needs --cert-secret-name")
		case kind == "mutating":
			mutating = append(mutating, name)
		default:
			validating = append(validating, name)
		}
	}
	return mutating, validating, nil
}

// namespaceFile is where a pod finds its namespace.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// start begins to keep certificates, if it is asked for.
func (m *managed) start(ctx context.Context, kubeconfig string, in *selected, callers *callers, log *slog.Logger, set *metrics.Set) error {
	if m.secretName == "" {
		return nil
	}
	o, err := m.options(kubeconfig, in, callers)
	if err != nil {
		return err
	}
	o.Log, o.Metrics = log, set
	if m.manager, err = certs.New(*o); err != nil {
		return err
	}
	go m.manager.Run(ctx)
	return nil
}

// options returns what is kept and registered for what was selected.
func (m *managed) options(kubeconfig string, in *selected, callers *callers) (*certs.Options, error) {
	if m.secretNamespace == "" {
		content, err := files.Read(namespaceFile)
		if err != nil {
			return nil, fmt.Errorf("--cert-secret-namespace is empty and fastadmit does not run in a pod: %w", err)
		}
		m.secretNamespace = strings.TrimSpace(string(content))
	}
	reach, err := cluster.RESTConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	m.last = *in
	mutating, validating, err := m.configurations(callers)
	if err != nil {
		return nil, err
	}
	o := &certs.Options{
		Config:          reach,
		SecretNamespace: m.secretNamespace,
		SecretName:      m.secretName,
		Hosts:           hosts(mutating, validating),
		Owner:           m.owner,
		Deployment:      m.deployment,
		RulesVary:       in.chain.RulesVary(),
	}
	if len(m.registered) == 0 {
		o.Configurations = []runtime.Object{mutating, validating}
	} else if o.MutatingWebhookConfigurations, o.ValidatingWebhookConfigurations, err = m.others(); err != nil {
		return nil, err
	}
	if callers.managed {
		o.PathTokens = callers.acceptPathTokens
	}
	return o, nil
}

// reload registers what was selected anew, unless others do.
func (m *managed) reload(in *selected, callers *callers) error {
	if m.manager == nil || len(m.registered) > 0 {
		return nil
	}
	before := m.last
	m.last = *in
	mutating, validating, err := m.configurations(callers)
	if err == nil {
		err = m.manager.SetConfigurations([]runtime.Object{mutating, validating})
	}
	if err != nil {
		m.last = before
	}
	return err
}

// configurations returns both webhook configurations. One that no plugin needs
// has no webhooks, so that those it may have had are taken away.
func (m *managed) configurations(callers *callers) (
	mutating *admissionregistrationv1.MutatingWebhookConfiguration,
	validating *admissionregistrationv1.ValidatingWebhookConfiguration,
	err error,
) {
	options := m.last.Registration
	if options.PathToken = callers.firstPathToken(); callers.managed {
		options.PathToken = certs.PathTokenPlaceholder
	}
	r, err := m.last.register(&options)
	if err != nil {
		return nil, nil, err
	}
	mutating, validating = r.Mutating, r.Validating
	switch {
	case mutating == nil:
		mutating = &admissionregistrationv1.MutatingWebhookConfiguration{TypeMeta: validating.TypeMeta, ObjectMeta: validating.ObjectMeta}
		mutating.Kind = "MutatingWebhookConfiguration"
	case validating == nil:
		validating = &admissionregistrationv1.ValidatingWebhookConfiguration{TypeMeta: mutating.TypeMeta, ObjectMeta: mutating.ObjectMeta}
		validating.Kind = "ValidatingWebhookConfiguration"
	}
	return mutating, validating, nil
}

// hosts returns what kube-apiserver calls the server, which is the same in all
// webhooks.
func hosts(mutating *admissionregistrationv1.MutatingWebhookConfiguration, validating *admissionregistrationv1.ValidatingWebhookConfiguration) []string {
	var client admissionregistrationv1.WebhookClientConfig
	if len(mutating.Webhooks) > 0 {
		client = mutating.Webhooks[0].ClientConfig
	} else {
		client = validating.Webhooks[0].ClientConfig
	}
	if service := client.Service; service != nil {
		return []string{service.Name + "." + service.Namespace + ".svc"}
	}
	address, err := url.Parse(*client.URL)
	if err != nil {
		return nil // it was validated
	}
	return []string{address.Hostname()}
}

// checks call the server, which listens at that address, as kube-apiserver
// does, and say whether it is registered.
func (m *managed) checks(address net.Addr) []check {
	certificate := func() (bool, string) {
		host, port, err := net.SplitHostPort(address.String())
		if err == nil && net.ParseIP(host).IsUnspecified() {
			host = "localhost"
		}
		if err == nil {
			err = m.manager.Ready(context.Background(), net.JoinHostPort(host, port))
		}
		if err != nil {
			return false, err.Error()
		}
		return true, ""
	}
	registration := func() (bool, string) {
		if err := m.manager.Registered(); err != nil {
			return false, err.Error()
		}
		return true, ""
	}
	return []check{
		{name: "certificate", ask: certificate},
		{name: "registration", ask: registration, informs: "webhooks are registered when their Service has pods that are ready"},
	}
}
