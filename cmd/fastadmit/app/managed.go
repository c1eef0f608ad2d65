package app

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/VictoriaMetrics/metrics"
	"github.com/spf13/pflag"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/handlers/cluster"
	"github.com/fastadmit/fastadmit/internal/certs"
)

// managed says that fastadmit keeps its certificates in a Secret and registers
// itself.
type managed struct {
	secretName, secretNamespace, owner string

	manager *certs.Manager // nil if it does not
}

func (m *managed) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&m.secretName, "cert-secret-name", "",
		"Secret to keep certificates in, which all replicas share; they are made and renewed, and the webhook configurations with them")
	flags.StringVar(&m.secretNamespace, "cert-secret-namespace", "", "namespace of --cert-secret-name; that of the pod if empty")
	flags.StringVar(&m.owner, "webhook-owner", "", "ClusterRole with which the webhook configurations and the Secret are removed")
}

// namespaceFile is where a pod finds its namespace.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// start begins to keep certificates, if it is asked for.
func (m *managed) start(ctx context.Context, kubeconfig string, in *selected, log *slog.Logger, set *metrics.Set) error {
	if m.secretName == "" {
		return nil
	}
	if m.secretNamespace == "" {
		content, err := os.ReadFile(namespaceFile)
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
	m.manager, err = certs.New(certs.Options{
		Config:          reach,
		SecretNamespace: m.secretNamespace,
		SecretName:      m.secretName,
		Hosts:           hosts(mutating, validating),
		Configurations:  []runtime.Object{mutating, validating},
		Owner:           m.owner,
		Log:             log,
		Metrics:         set,
	})
	if err != nil {
		return err
	}
	go m.manager.Run(ctx)
	return nil
}

// reload registers what was selected anew.
func (m *managed) reload(in *selected) error {
	if m.manager == nil {
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
