package app

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/internal/registration"
	"github.com/fastadmit/fastadmit/internal/registration/pathtoken"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

var update = flag.Bool("update-manifests", false, "write what manifests prints to testdata anew")

// caFile is the file of a CA certificate. The certificate has expired, which
// only clients check.
const caFile = "testdata/ca.crt"

func TestManifests(t *testing.T) {
	config := servertest.TempFile(t, "fastadmit.yaml", `apiVersion: fastadmit.io/v1alpha1
kind: Configuration
enableAdmissionPlugins: [AlwaysPullImages, DenyServiceExternalIPs, AlwaysDeny]
registration: {labels: {app: fastadmit}, timeoutSeconds: 3}
plugins:
- name: AlwaysPullImages
  failurePolicy: Ignore
  namespaceSelector: {matchLabels: {tenant: 'yes'}}
- name: AlwaysDeny
  rules: [{operations: [DELETE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]
`)
	f := func(name string, notes []string, args ...string) {
		t.Helper()
		got, stderr, code := execute("", append([]string{"manifests"}, args...)...)
		file := filepath.Join("testdata", "manifests-"+name+".yaml")
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if code != exitDone || got != string(want) {
			t.Errorf("%s: got exit code %d,\n%s\nwant 0,\n%s", name, code, got, want)
		}
		if want := "fastadmit: " + strings.Join(notes, "\nfastadmit: ") + "\n"; stderr != want {
			t.Errorf("%s: got stderr\n%s\nwant\n%s", name, stderr, want)
		}
	}
	const (
		leftOut = "no plugin sees requests in the namespaces fastadmit, kube-node-lease, kube-system"
		calls   = "kube-apiserver calls https://fastadmit.fastadmit.svc:443; the serving certificate must be valid for " +
			"fastadmit.fastadmit.svc"
		roots = "without a caBundle, kube-apiserver trusts the certificate authorities of its own machine only"
	)
	f("service", []string{leftOut, calls, roots}, "--enable-admission-plugins=AlwaysPullImages,DenyServiceExternalIPs")
	f("flags", []string{
		"no plugin sees requests in the namespaces infra, kube-node-lease, kube-system",
		"kube-apiserver calls https://webhook.infra.svc:8443; the serving certificate must be valid for webhook.infra.svc",
	}, "--enable-admission-plugins=DenyServiceExternalIPs", "-n", "infra", "--service-name=webhook", "--service-port=8443",
		"--name=admission.example.com", "--timeout-seconds=2", "--ca-bundle-file="+caFile)
	f("config", []string{leftOut, calls, roots}, "--config="+config)
	f("url", []string{
		"no plugin sees requests in the namespaces infra, kube-node-lease, kube-system",
	}, "--enable-admission-plugins=StorageObjectInUseProtection", "-n", "infra", "--url=https://fastadmit.example.com/",
		"--ca-bundle-file="+caFile)
	f("static", []string{
		"no plugin sees requests in the namespaces kube-node-lease, kube-system",
		"with a URL, the namespace that fastadmit runs in is not known: if it runs in this cluster, name the namespace, so " +
			"that fastadmit does not " +
			"keep its own pods from starting",
		"AlwaysDeny handles every resource: leases, events, nodes and webhook configurations wait for fastadmit, even " +
			"cluster-scoped ones, to which no namespaceSelector applies; configure rules for the plugin to select fewer",
		"kube-apiserver reads mutating and validating configurations from different folders, named by staticManifestsDir in its " +
			"AdmissionConfiguration, with the feature gate ManifestBasedAdmissionControlConfig",
	}, "--enable-admission-plugins=AlwaysDeny", "--static", "--url=https://127.0.0.1:8443", "--ca-bundle-file="+caFile,
		"--kind=ValidatingWebhookConfiguration")
}

// TestManifestsWrong shows what the command says when it is used wrongly (2) or
// cannot do what it was asked for (1). Then it prints nothing.
func TestManifestsWrong(t *testing.T) {
	f := func(code int, want string, args ...string) {
		t.Helper()
		stdout, stderr, got := execute("", append([]string{"manifests"}, args...)...)
		if got != code || !strings.Contains(stderr, want) || stdout != "" {
			t.Errorf("%q: got exit code %d, stderr %q, stdout %q, want %d with %q", args, got, stderr, stdout, code, want)
		}
	}
	const images, services = "--enable-admission-plugins=AlwaysPullImages", "--enable-admission-plugins=DenyServiceExternalIPs"
	f(2, "no admission plugin is enabled")
	f(2, `got the argument "x", want none`, images, "x")
	f(2, "fastadmit: registration.timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds\n",
		images, "--timeout-seconds=31")
	f(2, "fastadmit: registration.clientConfig.service.port: Invalid value: 0: port is not valid: must be between 1 and "+
		"65535, inclusive\n"+
		"registration.timeoutSeconds: Invalid value: 0: ", images, "--timeout-seconds=0", "--service-port=0")
	f(2, `registration.name: Invalid value: "fastadmit": it ends the names of webhooks`, images, "--name=fastadmit")
	f(2, "registration.clientConfig.service.name: Required value", images, "--service-name=")
	f(2, "registration.clientConfig.service.namespace: Required value", images, "--namespace=", "--service-name=a")
	f(2, `registration.clientConfig.url: Invalid value: "http": 'https' is the only allowed URL scheme`, images, "--url=http://a")
	f(2, "--url cannot be used with --service-name and --service-port", images, "--url=https://a", "--service-port=1")
	f(2, "registration.clientConfig.url: Required value: is required for static manifests", images, "--static")
	f(2, "registration.clientConfig.service: Forbidden: is not supported for static manifests; use url instead", images,
		"--static", "--service-port=1")
	f(2, `--kind: got "Pod", want MutatingWebhookConfiguration, ValidatingWebhookConfiguration or ClusterRole`, images, "--kind=Pod")
	f(1, "no enabled plugin needs a MutatingWebhookConfiguration", services, "--kind=MutatingWebhookConfiguration")
	f(1, "cannot read --ca-bundle-file: open ", images, "--ca-bundle-file="+filepath.Join(t.TempDir(), "missing"))
	f(1, "is empty", images, "--ca-bundle-file="+servertest.TempFile(t, "empty", ""))
	f(2, "registration.clientConfig.caBundle: Invalid value: got no PEM block, want at least one certificate", images,
		"--ca-bundle-file="+servertest.TempFile(t, "text", "text"))
	f(1, "cannot enable plugin EventRateLimit: ", "--enable-admission-plugins=EventRateLimit")
}

// TestRegistrationFlags tests that flags override options from a file.
func TestRegistrationFlags(t *testing.T) {
	f := func(file, want string, args ...string) {
		t.Helper()
		var o, wanted registration.Options
		if err := errors.Join(yaml.UnmarshalStrict([]byte(file), &o), yaml.UnmarshalStrict([]byte(want), &wanted)); err != nil {
			t.Fatal(err)
		}
		before := *o.ClientConfig.DeepCopy()
		var r registrationFlags
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		r.addFlags(flags)
		if err := flags.Parse(args); err != nil {
			t.Fatal(err)
		}
		got, err := r.override(o)
		if err != nil || !reflect.DeepEqual(*got, wanted) {
			t.Errorf("%s %q: got %+v, %v, want %+v", file, args, got, err, wanted)
		}
		if !reflect.DeepEqual(o.ClientConfig, before) {
			t.Errorf("%s %q: what was in the file changed to %+v", file, args, o.ClientConfig)
		}
	}
	const (
		service = "clientConfig: {service: {namespace: n, name: s, port: 1, path: /p}, caBundle: YQ==}"
		byURL   = "clientConfig: {url: 'https://a', caBundle: YQ==}"
	)
	f("", "")
	f("{name: a.b, timeoutSeconds: 3, matchPolicy: Exact}", "{name: a.b, timeoutSeconds: 3, matchPolicy: Exact}")
	f("{name: a.b, timeoutSeconds: 3, matchPolicy: Exact}", "{name: c.d, timeoutSeconds: 10, matchPolicy: Exact}", "--name=c.d",
		"--timeout-seconds=10")
	f(service, service)
	f(service, byURL, "--url=https://a")
	f(service, "clientConfig: {service: {namespace: n, name: t, port: 1, path: /p}, caBundle: YQ==}", "--service-name=t")
	f(service, "clientConfig: {service: {namespace: n, name: s, port: 443, path: /p}, caBundle: YQ==}", "--service-port=443")
	f(service, "{namespace: m, clientConfig: {service: {namespace: m, name: s, port: 1, path: /p}, caBundle: YQ==}}", "-n=m")
	f("namespace: m", "{namespace: m, clientConfig: {service: {namespace: m, name: t, port: 443}}}", "--service-name=t")
	f("", "{namespace: m, clientConfig: {service: {namespace: m, name: fastadmit, port: 443}}}", "--namespace=m")
	f(byURL, byURL)
	f(byURL, "{namespace: m, clientConfig: {url: 'https://a', caBundle: YQ==}}", "--namespace=m")
	f(byURL, "clientConfig: {service: {namespace: fastadmit, name: fastadmit, port: 1}, caBundle: YQ==}", "--service-port=1")
}

// TestManifestsPathToken puts the first token of the file into the paths, as
// managed registration does.
func TestManifestsPathToken(t *testing.T) {
	token := pathtoken.New()
	file := servertest.TempFile(t, "tokens", token+"\n"+pathtoken.New())
	f := func(want string, args ...string) {
		t.Helper()
		stdout, stderr, code := execute("", append([]string{"manifests", "--enable-admission-plugins=AlwaysPullImages"}, args...)...)
		if code != 0 || !strings.Contains(stdout, want) ||
			!strings.Contains(stderr, "whoever may read the webhook configurations can call fastadmit") {
			t.Errorf("%q: got exit code %d, %s, %s, want %s", args, code, stdout, stderr, want)
		}
	}
	f("path: /"+token+"/mutate/fail\n", "--path-token-file="+file)
	f("url: https://a.example.com/p/"+token+"/mutate/fail\n", "--path-token-file="+file, "--url=https://a.example.com/p/")
	f("path: /"+token+"/validate/fail\n",
		"--config="+servertest.TempFile(t, "config.yaml", configHead+"server: {pathTokenFile: "+file+"}\n"))
	_, stderr, code := execute("", "manifests", "--enable-admission-plugins=AlwaysPullImages",
		"--path-token-file="+servertest.TempFile(t, "tokens", "x"))
	if code != 1 || !strings.Contains(stderr, "cannot read --path-token-file: ") {
		t.Errorf("got exit code %d, %s, want that the file is wrong", code, stderr)
	}
}
