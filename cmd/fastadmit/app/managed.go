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

	"github.com/fastadmit/fastadmit/handlers/cluster"
	"github.com/fastadmit/fastadmit/internal/certs"
	"github.com/fastadmit/fastadmit/internal/files"
)

// managed says that fastadmit keeps its certificates in a Secret, and registers
// itself or has kube-apiserver trust it where others registered it.
type managed struct {
	secretName, secretNamespace, owner string
	registered                         []string // by others, each mutating/<name> or validating/<name>

	manager *certs.Manager // nil if it does not
}

func (m *managed) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&m.secretName, "cert-secret-name", "",
		"Secret to keep certificates in, which all replicas share; they are made and renewed, and the webhook configurations with them")
	flags.StringVar(&m.secretNamespace, "cert-secret-namespace", "", "namespace of --cert-secret-name; that of the pod if empty")
	flags.StringVar(&m.owner, "webhook-owner", "", "ClusterRole with which the webhook configurations and the Secret are removed")
	flags.StringSliceVar(&m.registered, "webhook-configurations", nil,
		"webhook configurations that others make, as mutating/<name> or validating/<name>: of these, the caBundle of the webhooks for fastadmit is kept, and fastadmit makes none of its own")
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
			return nil, nil, errors.New("--webhook-configurations goes with --cert-secret-name")
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
func (m *managed) start(ctx context.Context, kubeconfig string, in *selected, log *slog.Logger, set *metrics.Set) error {
	if m.secretName == "" {
		return nil
	}
	if m.secretNamespace == "" {
		content, err := files.Read(namespaceFile)
		if err != nil {
			return fmt.Errorf("--cert-secret-namespace is empty and this is no pod: %w", err)
		}
		m.secretNamespace = strings.TrimSpace(string(content))
	}
	reach, err := cluster.RESTConfig(kubeconfig)
	if err != nil {
		return err
	}
	mutating, validating, err := configurations(in)
	if err != nil {
		return err
	}
	o := certs.Options{
		Config:          reach,
		SecretNamespace: m.secretNamespace,
		SecretName:      m.secretName,
		Hosts:           hosts(mutating, validating),
		Owner:           m.owner,
		Log:             log,
		Metrics:         set,
	}
	if len(m.registered) == 0 {
		o.Configurations = []runtime.Object{mutating, validating}
	} else if o.MutatingWebhookConfigurations, o.ValidatingWebhookConfigurations, err = m.others(); err != nil {
		return err
	}
	if m.manager, err = certs.New(o); err != nil {
		return err
	}
	go m.manager.Run(ctx)
	return nil
}

// reload registers what was selected anew, unless others do.
func (m *managed) reload(in *selected) error {
	if m.manager == nil || len(m.registered) > 0 {
		return nil
	}
	mutating, validating, err := configurations(in)
	if err != nil {
		return err
	}
	return m.manager.SetConfigurations([]runtime.Object{mutating, validating})
}

// configurations returns both webhook configurations. One that no plugin needs
// has no webhooks, so that those it may have had are taken away.
func configurations(in *selected) (
	mutating *admissionregistrationv1.MutatingWebhookConfiguration,
	validating *admissionregistrationv1.ValidatingWebhookConfiguration,
	err error,
) {
	r, err := in.register(&in.Registration)
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

// check calls the server, which listens at that address, as kube-apiserver
// does.
func (m *managed) check(address net.Addr) check {
	return check{"certificate", func() (bool, string) {
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
	}}
}
