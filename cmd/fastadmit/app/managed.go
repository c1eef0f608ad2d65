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
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/internal/config"
	"github.com/fastadmit/fastadmit/internal/files"
	"github.com/fastadmit/fastadmit/internal/registration/certs"
	"github.com/fastadmit/fastadmit/internal/server"
	"github.com/fastadmit/fastadmit/internal/server/status"
)

// managed keeps certificates in a Secret. It also registers the webhooks, or sets the
// caBundle of webhooks that somebody else registered.
type managed struct {
	settings *config.Server
	manager  *certs.Manager // nil without --cert-secret-name
	last     selected       // what was registered last
}

// registeredByOthers returns the names in --webhook-configurations, by kind.
func registeredByOthers(settings *config.Server) (mutating, validating []string, err error) {
	for i, configuration := range settings.WebhookConfigurations {
		kind, name, _ := strings.Cut(configuration, "/")
		switch {
		case len(validation.IsDNS1123Subdomain(name)) > 0 || kind != "mutating" && kind != "validating":
			return nil, nil, fmt.Errorf("--webhook-configurations: got %q, want mutating/<name> or validating/<name>", configuration)
		case slices.Contains(settings.WebhookConfigurations[:i], configuration):
			return nil, nil, fmt.Errorf("--webhook-configurations: got %s twice", configuration)
		case settings.CertSecretName == "":
			return nil, nil, errors.New("--webhook-configurations needs --cert-secret-name")
		case kind == "mutating":
			mutating = append(mutating, name)
		default:
			validating = append(validating, name)
		}
	}
	return mutating, validating, nil
}

// namespaceFile contains the namespace of a pod.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// start starts the manager of the certificates, if there is a Secret for them.
func (m *managed) start(ctx context.Context, kubeconfig string, in *selected, callers *server.Callers, log *slog.Logger, set *metrics.Set) error {
	if m.settings.CertSecretName == "" {
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

// options returns the options of the manager for the selected plugins.
func (m *managed) options(kubeconfig string, in *selected, callers *server.Callers) (*certs.Options, error) {
	if m.settings.CertSecretNamespace == "" {
		content, err := files.Read(namespaceFile)
		if err != nil {
			return nil, fmt.Errorf("--cert-secret-namespace is empty and fastadmit does not run in a pod: %w", err)
		}
		m.settings.CertSecretNamespace = strings.TrimSpace(string(content))
	}
	reach, err := cluster.RESTConfig(kubeconfig, "")
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
		SecretNamespace: m.settings.CertSecretNamespace,
		SecretName:      m.settings.CertSecretName,
		Hosts:           hosts(mutating, validating),
		Owner:           m.settings.WebhookOwner,
		Deployment:      m.settings.EventDeployment,
		RulesVary:       in.chain.RulesVary() || in.shadow != nil && in.shadow.Chain.RulesVary(),
	}
	if len(m.settings.WebhookConfigurations) == 0 {
		o.Configurations = []runtime.Object{mutating, validating}
	} else if o.MutatingWebhookConfigurations, o.ValidatingWebhookConfigurations, err = registeredByOthers(m.settings); err != nil {
		return nil, err
	}
	if callers.Managed {
		o.PathTokens = callers.AcceptPathTokens
	}
	return o, nil
}

// reload registers the webhooks of the selected plugins, unless somebody else does.
func (m *managed) reload(in *selected, callers *server.Callers) error {
	if m.manager == nil || len(m.settings.WebhookConfigurations) > 0 {
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

// configurations returns both webhook configurations. If no plugin needs one of them, it has
// no webhooks, which removes those that were registered before.
func (m *managed) configurations(callers *server.Callers) (
	mutating *admissionregistrationv1.MutatingWebhookConfiguration,
	validating *admissionregistrationv1.ValidatingWebhookConfiguration,
	err error,
) {
	options := m.last.Registration
	if options.PathToken = callers.FirstPathToken(); callers.Managed {
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

// hosts returns the host name that kube-apiserver uses for the server. It is the same in all
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
		return nil // the configuration was validated
	}
	return []string{address.Hostname()}
}

// describe adds the webhook configurations and the replicas to the status page.
func (m *managed) describe(ctx context.Context, page *status.Page) {
	if m.manager == nil {
		return
	}
	for _, r := range m.manager.Registrations() {
		page.Registrations = append(page.Registrations, status.Registration(r))
	}
	page.Replicas = m.manager.Replicas(ctx)
}

// checks are checks of /readyz: one calls the server at address as kube-apiserver does, the
// other shows whether the webhooks are registered.
func (m *managed) checks(address net.Addr) []server.Check {
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
	return []server.Check{
		{Name: "certificate", Ask: certificate},
		{Name: "registration", Ask: registration, Informs: "webhooks are registered when their Service has pods that are ready"},
	}
}
