package app

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/internal/config"
	"github.com/fastadmit/fastadmit/internal/registration"
	"github.com/fastadmit/fastadmit/internal/registration/pathtoken"
)

type manifestsOptions struct {
	selection
	registration registrationFlags
	kind         string
}

// The values of --kind.
const (
	mutatingKind   = "MutatingWebhookConfiguration"
	validatingKind = "ValidatingWebhookConfiguration"
	roleKind       = "ClusterRole"
)

func newManifestsCommand(o *options) *cobra.Command {
	m := &manifestsOptions{selection: selection{options: o, shadow: newShadowed()}}
	cmd := &cobra.Command{
		Use:   "manifests",
		Short: "Print the webhook configurations, or the ClusterRole, for the enabled plugins",
		Long: `Prints a MutatingWebhookConfiguration and a ValidatingWebhookConfiguration with which kube-apiserver
calls serve for the requests that the enabled plugins handle, and for no others. The flags and files of
serve select the plugins. The other flags override the section registration of --config. Notes go to
standard error.

With --kind=ClusterRole, it prints the permissions that the enabled plugins and selectors need,
including your own plugins. Bind it to the ServiceAccount of serve.`,
		Example: "  fastadmit manifests --enable-admission-plugins=AlwaysPullImages --ca-bundle-file=ca.crt | kubectl apply -f -\n" +
			"  fastadmit manifests --enable-admission-plugins=LimitRanger --kind=ClusterRole | kubectl apply -f -",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return m.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	m.addFlags(cmd)
	m.useKubeconfig(unusedCluster, unusedCluster)
	m.registration.addFlags(flags)
	flags.StringVar(&m.kind, "kind", "", "print only the MutatingWebhookConfiguration or the ValidatingWebhookConfiguration, or the ClusterRole that plugins and selectors need")
	completeValues(cmd, "kind", mutatingKind, validatingKind, roleKind)
	return cmd
}

func (m *manifestsOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	in, err := m.loadOnly(ctx)
	if err != nil {
		return err
	}
	if m.kind == roleKind {
		return m.printRole(stdout, &in)
	}
	options, err := m.registration.override(in.Registration)
	if err != nil {
		return err
	}
	if !m.flags.Changed("path-token-file") {
		m.registration.pathTokenFile = in.Server.PathTokenFile
	}
	if m.registration.pathTokenFile != "" {
		tokens, err := pathtoken.ReadFile(m.registration.pathTokenFile)
		if err != nil {
			return failed(fmt.Errorf("cannot read --path-token-file: %w", err))
		}
		options.PathToken = tokens[0]
	}
	r, err := in.register(options)
	if err != nil {
		return err
	}
	text, err := m.marshal(r)
	if err != nil {
		return err
	}
	for _, note := range r.Notes {
		fmt.Fprintf(stderr, "fastadmit: %s\n", note)
	}
	_, err = stdout.Write(text)
	return failed(err)
}

// printRole prints a ClusterRole with the permissions that the selected plugins and the
// selectors need.
func (m *manifestsOptions) printRole(stdout io.Writer, in *selected) error {
	needs, _ := needed(m.options.table(), in.enabled, in.Loaded)
	needs = append(needs, in.tried.needs(m.options.table())...)
	role := &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: roleKind},
		ObjectMeta: metav1.ObjectMeta{Name: cmp.Or(in.Registration.Name, registration.DefaultName)},
		Rules:      cluster.Rules(needs...),
	}
	if m.flags.Changed("name") {
		role.Name = m.registration.name
	}
	if role.Rules == nil {
		return failed(errors.New("no enabled plugin accesses the cluster: no permissions are needed"))
	}
	text, err := yaml.Marshal(role)
	if err == nil {
		_, err = stdout.Write(text)
	}
	return failed(err)
}

// register returns the webhook configurations for the selected plugins.
func (s *selected) register(options *registration.Options) (*registration.Registration, error) {
	plugins := registered(s.chain, s.Plugins)
	plugins = append(plugins, s.tried.registered(s.shadow)...)
	r, err := registration.New(plugins, options, field.NewPath("registration"))
	if all, ok := errors.AsType[utilerrors.Aggregate](err); ok {
		return nil, errors.Join(all.Errors()...) // a line each
	}
	return r, err
}

// registered returns the plugins of a chain with the settings that select their reviews.
func registered(chain *admission.Chain, settings []config.Plugin) (plugins []registration.Plugin) {
	chain.Each(func(plugin *admission.Plugin, own *admission.Settings) {
		narrowed := *plugin
		narrowed.Rules = chain.RulesOf(plugin.Name)
		p := registration.Plugin{Plugin: &narrowed, ChecksWorkloads: own.ChecksWorkloads(), PodTemplatePaths: own.PodTemplatePaths}
		for _, configured := range settings {
			if configured.Name == plugin.Name {
				p.Criteria, p.FailurePolicy = configured.Criteria, configured.FailurePolicy
			}
		}
		plugins = append(plugins, p)
	})
	return plugins
}

// marshal returns the configurations of the requested kind, or both, as YAML documents.
func (m *manifestsOptions) marshal(r *registration.Registration) ([]byte, error) {
	if m.kind != "" && m.kind != mutatingKind && m.kind != validatingKind {
		return nil, fmt.Errorf("--kind: got %q, want %s, %s or %s", m.kind, mutatingKind, validatingKind, roleKind)
	}
	var objects []any
	if r.Mutating != nil && m.kind != validatingKind {
		objects = append(objects, r.Mutating)
	}
	if r.Validating != nil && m.kind != mutatingKind {
		objects = append(objects, r.Validating)
	}
	if len(objects) == 0 {
		return nil, failed(fmt.Errorf("no enabled plugin needs a %s", m.kind))
	}
	var documents [][]byte
	for _, object := range objects {
		document, err := yaml.Marshal(object)
		if err != nil {
			return nil, failed(err)
		}
		documents = append(documents, document)
	}
	return bytes.Join(documents, []byte("---\n")), nil
}

// registrationFlags are the flags that override the section registration of --config.
type registrationFlags struct {
	flags          *pflag.FlagSet
	name           string
	namespace      string
	serviceName    string
	servicePort    int32
	url            string
	caBundleFile   string
	timeoutSeconds int32
	pathTokenFile  string
	static         bool
}

func (r *registrationFlags) addFlags(flags *pflag.FlagSet) {
	r.flags = flags
	flags.StringVar(&r.name, "name", registration.DefaultName, "name of both configurations, and suffix of the names of their webhooks")
	flags.StringVarP(&r.namespace, "namespace", "n", registration.DefaultNamespace,
		"namespace of the service; with --url, the namespace of serve, if any. The webhooks exclude it")
	flags.StringVar(&r.serviceName, "service-name", registration.DefaultServiceName, "service through which kube-apiserver calls serve")
	flags.Int32Var(&r.servicePort, "service-port", registration.DefaultServicePort, "port of the service")
	flags.StringVar(&r.url, "url", "", "URL at which kube-apiserver calls serve, instead of a service")
	flags.StringVar(&r.caBundleFile, "ca-bundle-file", "", "file with the CA certificates that verify the serving certificate, PEM")
	flags.Int32Var(&r.timeoutSeconds, "timeout-seconds", registration.DefaultTimeoutSeconds, "seconds that kube-apiserver waits for an answer, 1 to 30")
	flags.StringVar(&r.pathTokenFile, "path-token-file", "", "file with the path tokens of serve, one on each line; the first becomes part of the paths")
	flags.BoolVar(&r.static, "static", false, "print the form that kube-apiserver loads from files; needs --url")
}

// override returns the options with the values of flags. They may share memory with o.
func (r *registrationFlags) override(o registration.Options) (*registration.Options, error) {
	given := r.flags.Changed
	byService := given("service-name") || given("service-port")
	if given("url") && byService {
		return nil, errors.New("--url cannot be used with --service-name and --service-port")
	}
	o.Static = r.static
	if given("name") {
		o.Name = r.name
	}
	if given("namespace") {
		o.Namespace = r.namespace
	}
	if given("timeout-seconds") {
		o.TimeoutSeconds = &r.timeoutSeconds
	}
	c := &o.ClientConfig
	if given("url") {
		c.URL, c.Service = &r.url, nil
	}
	if byService || given("namespace") && c.URL == nil {
		c.URL, c.Service = nil, r.service(c.Service, cmp.Or(o.Namespace, registration.DefaultNamespace))
	}
	if given("ca-bundle-file") {
		var err error
		if c.CABundle, err = os.ReadFile(r.caBundleFile); err != nil {
			return nil, failed(fmt.Errorf("cannot read --ca-bundle-file: %w", err))
		}
		if len(c.CABundle) == 0 {
			return nil, failed(fmt.Errorf("--ca-bundle-file: %s is empty", r.caBundleFile))
		}
	}
	return &o, nil
}

// service returns the service with the values of flags, a new one if there is none.
func (r *registrationFlags) service(s *admissionregistrationv1.ServiceReference, namespace string) *admissionregistrationv1.ServiceReference {
	if s == nil {
		s = &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: r.serviceName, Port: &r.servicePort}
	}
	s = s.DeepCopy()
	if r.flags.Changed("namespace") {
		s.Namespace = r.namespace
	}
	if r.flags.Changed("service-name") {
		s.Name = r.serviceName
	}
	if r.flags.Changed("service-port") {
		s.Port = &r.servicePort
	}
	return s
}
