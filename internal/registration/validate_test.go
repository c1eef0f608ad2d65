package registration_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/registration"
)

// at is the path of the options in the tests.
const at = "registration."

// check compares the errors of New, in any order.
func check(t *testing.T, what string, o *registration.Options, plugins []registration.Plugin, want ...string) {
	t.Helper()
	r, err := registration.New(plugins, o, field.NewPath("registration"))
	var got []string
	if all, ok := errors.AsType[utilerrors.Aggregate](err); ok {
		for _, e := range all.Errors() {
			got = append(got, e.Error())
		}
	} else if err != nil {
		t.Fatalf("%s: got %v, want an error that joins all", what, err)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || (r == nil) != (err != nil) {
		t.Errorf("%s\ngot  %s\nwant %s", what, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

func TestValidate(t *testing.T) {
	images := []registration.Plugin{plugin("Images", "mv", admission.CreateUpdate("pods"))}
	f := func(text string, want ...string) {
		t.Helper()
		check(t, text, options(t, text), images, want...)
	}
	f("")

	const seconds = "the timeout value must be between 1 and 30 seconds"
	f("timeoutSeconds: -1", at+"timeoutSeconds: Invalid value: -1: "+seconds)
	f("timeoutSeconds: 0", at+"timeoutSeconds: Invalid value: 0: "+seconds)
	f("timeoutSeconds: 1")
	f("timeoutSeconds: 30")
	f("timeoutSeconds: 31", at+"timeoutSeconds: Invalid value: 31: "+seconds)

	const subdomain = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and " +
		"end with an alphanumeric character (e.g. 'example.com', regex used for validation is " +
		"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
	const ends = `it ends the names of webhooks, as in "validate-ignore.`
	f("name: fastadmit", at+`name: Invalid value: "fastadmit": `+ends+
		`fastadmit": should be a domain with at least three segments separated by dots`)
	f("name: a.b")
	f("name: a.b.c")
	f("name: A.b", at+`name: Invalid value: "A.b": `+subdomain)
	f("name: a..b", at+`name: Invalid value: "a..b": `+subdomain)
	long := strings.Repeat("a", 235) + ".b"
	f("name: " + long)
	f("name: a"+long, at+`name: Invalid value: "a`+long+`": `+ends+"a"+long+`": must be no more than 253 characters`)
	f("name: a.static.k8s.io", at+`name: Invalid value: "a.static.k8s.io": names ending with ".static.k8s.io" are reserved for `+
		`static manifest-based `+
		"configurations and cannot be managed via the API")
	f("labels: {a: '-'}", at+`labels: Invalid value: "-": a valid label must be an empty string or consist of alphanumeric `+
		`characters, '-', '_' or '.', `+
		"and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "+
		"'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')")
	f("annotations: {a/b/c: d}", at+`annotations: Invalid value: "a/b/c": a valid label key must consist of alphanumeric `+
		`characters, '-', '_' or '.', `+
		"and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "+
		"'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')")
	f("namespace: a.b", at+`namespace: Invalid value: "a.b": must not contain dots`)
	f("clientConfig: {service: {namespace: a.b, name: s}}",
		at+`clientConfig.service.namespace: Invalid value: "a.b": must not contain dots`)

	f("matchPolicy: Exact")
	f("matchPolicy: exact", at+`matchPolicy: Unsupported value: "exact": supported values: "Equivalent", "Exact"`)
	f("namespaceSelector: {matchExpressions: [{key: a, operator: in, values: [b]}]}",
		at+`namespaceSelector.matchExpressions[0].operator: Invalid value: "in": not a valid selector operator`)
	f("objectSelector: {matchExpressions: [{key: a, operator: In}]}",
		at+"objectSelector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'")

	f("admissionReviewVersions: []", at+"admissionReviewVersions: Required value: must specify one of v1, v1beta1")
	f("admissionReviewVersions: [v1beta1]")
	f("admissionReviewVersions: [v2, v1]")
	f("admissionReviewVersions: [v2]", at+`admissionReviewVersions: Invalid value: ["v2"]: must include at least one of v1, v1beta1`)
	f("admissionReviewVersions: [v1, v1]", at+`admissionReviewVersions[1]: Invalid value: "v1": duplicate version`)
	f("admissionReviewVersions: [v1, V1]", at+
		`admissionReviewVersions[1]: Invalid value: "V1": a DNS-1035 label must consist of lower case alphanumeric `+
		"characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123',"+
		" regex used for "+
		"validation is '[a-z]([-a-z0-9]*[a-z0-9])?')")

	f("{timeoutSeconds: 0, matchPolicy: x, objectSelector: {matchExpressions: [{key: a, operator: x}]}}", // all at once
		at+"timeoutSeconds: Invalid value: 0: "+seconds, at+`matchPolicy: Unsupported value: "x": supported values: "Equivalent", "Exact"`,
		at+`objectSelector.matchExpressions[0].operator: Invalid value: "x": not a valid selector operator`)
}

func TestValidateMatchConditions(t *testing.T) {
	images := []registration.Plugin{plugin("Images", "mv", admission.CreateUpdate("pods"))}
	f := func(text string, want ...string) {
		t.Helper()
		check(t, text, options(t, "matchConditions: ["+text+"]"), images, want...)
	}
	many := func(n int) string {
		var conditions []string
		for i := range n {
			conditions = append(conditions, fmt.Sprintf("{name: c%d, expression: 'true'}", i))
		}
		return strings.Join(conditions, ", ")
	}
	f("")
	f(many(63))
	f(many(64))
	f(many(65), at+"matchConditions: Too many: 65: must have at most 64 items")
	f("{name: a, expression: ' '}", at+"matchConditions[0].expression: Required value")
	f("{expression: 'true'}", at+"matchConditions[0].name: Required value")
	f("{name: a, expression: 'true'}, {name: a, expression: 'false'}", at+`matchConditions[1].name: Duplicate value: "a"`)
	f("{name: a b, expression: 'true'}", at+
		`matchConditions[0].name: Invalid value: "a b": name part must consist of alphanumeric characters, `+
		"'-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex "+
		"used for validation is "+
		"'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')")
}

func TestValidateClientConfig(t *testing.T) {
	images := []registration.Plugin{plugin("Images", "mv", admission.CreateUpdate("pods"))}
	f := func(text string, want ...string) {
		t.Helper()
		for i := range want {
			want[i] = at + "clientConfig" + want[i]
		}
		check(t, text, options(t, "clientConfig: "+text), images, want...)
	}
	service := func(more string) string { return "{service: {namespace: n, name: s" + more + "}}" }
	const port = "port is not valid: must be between 1 and 65535, inclusive"
	f(service(", port: 0"), ".service.port: Invalid value: 0: "+port)
	f(service(", port: 1"))
	f(service(", port: 65535"))
	f(service(", port: 65536"), ".service.port: Invalid value: 65536: "+port)
	f("{service: {}}", ".service.name: Required value", ".service.namespace: Required value")

	for _, fine := range []string{"", "/", "/a", "/a/", "/a/b.c-d/0"} {
		f(service(", path: '" + fine + "'"))
	}
	path := func(path string, want ...string) {
		t.Helper()
		for i := range want {
			want[i] = `.service.path: Invalid value: "` + path + `": ` + want[i]
		}
		f(service(", path: '"+path+"'"), want...)
	}
	const subdomain = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and " +
		"end with an alphanumeric character (e.g. 'example.com', regex used for validation is " +
		"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
	path("//", "segment[0] may not be empty")
	path("/a//b", "segment[1] may not be empty")
	path("/a//", "segment[1] may not be empty")
	path("/A", "segment[0]: "+subdomain)
	path("/a_b", "segment[0]: "+subdomain)
	path("aa", "must start with a '/'")

	f("{url: 'https://a'}")
	f("{url: 'https://a:1/b?'}")
	f("{url: 'https://a', service: {namespace: n, name: s}}", ": Required value: exactly one of url or service is required")
	const form = "; desired format: https://host[/path]"
	f("{url: 'http://a'}", `.url: Invalid value: "http": 'https' is the only allowed URL scheme`+form)
	f("{url: ''}", `.url: Invalid value: "": 'https' is the only allowed URL scheme`+form,
		`.url: Invalid value: "": host must be specified`+form)
	f("{url: 'https:///a'}", `.url: Invalid value: "": host must be specified`+form)
	f("{url: 'https://user:secret@a'}", `.url: Invalid value: "user": user information is not permitted in the URL`)
	f("{url: 'https://a#b'}", `.url: Invalid value: "b": fragments are not permitted in the URL`)
	f("{url: 'https://a?b=c'}", `.url: Invalid value: "b=c": query parameters are not permitted in the URL`)
	f("{url: 'https://a:b'}", `.url: Required value: url must be a valid URL: parse "https://a:b": invalid port ":b" after host`+form)
}

func TestValidateStatic(t *testing.T) {
	f := func(text string, want ...string) {
		t.Helper()
		o := options(t, text)
		o.Static = true
		check(t, text, o, []registration.Plugin{plugin("Images", "mv", admission.CreateUpdate("pods"))}, want...)
	}
	f("clientConfig: {url: 'https://a'}")
	f("", at+"clientConfig.url: Required value: is required for static manifests")
	f("clientConfig: {service: {namespace: n, name: s}}", at+
		"clientConfig.service: Forbidden: is not supported for static manifests; use url instead")
}

func TestValidateCABundle(t *testing.T) {
	f := func(bundle []byte, want ...string) {
		t.Helper()
		o := &registration.Options{ClientConfig: admissionregistrationv1.WebhookClientConfig{CABundle: bundle}}
		check(t, string(bundle), o, []registration.Plugin{plugin("Images", "mv", admission.CreateUpdate("pods"))}, want...)
	}
	const caBundle = at + "clientConfig.caBundle: Invalid value: "
	certificate, key := newCertificate(t)
	f(nil)
	f(certificate)
	f(slices.Concat([]byte("a comment\n"), certificate, certificate))
	f([]byte("nothing"), caBundle+"got no PEM block, want at least one certificate")
	f(certificate[:len(certificate)-2], caBundle+"got no PEM block, want at least one certificate")
	f(slices.Concat(certificate, key), caBundle+"block 2: got EC PRIVATE KEY, want CERTIFICATE")
	f(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}), caBundle+"block 1: x509: malformed certificate")
}

func newCertificate(t *testing.T) (certificate, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}

func TestValidatePlugins(t *testing.T) {
	f := func(p registration.Plugin, want ...string) {
		t.Helper()
		for i := range want {
			want[i] = "plugins[P]." + want[i]
		}
		check(t, "plugin", new(registration.Options), []registration.Plugin{p}, want...)
	}
	v := func(rules ...admission.Rule) registration.Plugin { return plugin("P", "v", rules...) }
	f(v(rule("Create", "", "v1", "pods")),
		`rules[0].operations[0]: Unsupported value: "Create": supported values: "*", "CONNECT", "CREATE", "DELETE", "UPDATE"`)
	f(v(rule("*,CREATE", "", "v1", "pods")),
		`rules[0].operations: Invalid value: ["*","CREATE"]: if '*' is present, must not specify other operations`)
	f(v(rule("CREATE", "*,apps", "v1", "pods")),
		`rules[0].apiGroups: Invalid value: ["*","apps"]: if '*' is present, must not specify other API groups`)
	f(v(rule("CREATE", "", "*,v1", "pods")),
		`rules[0].apiVersions: Invalid value: ["*","v1"]: if '*' is present, must not specify other API versions`)
	f(v(rule("CREATE", "", "", "pods")), "rules[0].apiVersions[0]: Required value")
	f(v(rule("CREATE", "", "v1", "pods/*,pods/exec")),
		`rules[0].resources[1]: Invalid value: "pods/exec": if 'pods/*' is present, must not specify pods/exec`)
	f(v(rule("CREATE", "", "v1", "*/*,pods")),
		`rules[0].resources: Invalid value: ["*/*","pods"]: if '*/*' is present, must not specify other resources`)
	f(v(rule("CREATE", "", "v1", "*,pods")),
		`rules[0].resources: Invalid value: ["*","pods"]: if '*' is present, must not specify other resources without subresources`)
	f(v(admission.Rule{}), "rules[0].operations: Required value", "rules[0].apiGroups: Required value",
		"rules[0].apiVersions: Required value", "rules[0].resources: Required value")
	scoped := rule("CREATE", "", "v1", "pods")
	scoped.Scope = "cluster"
	f(v(scoped), `rules[0].scope: Unsupported value: "cluster": supported values: "*", "Cluster", "Namespaced"`)

	pods := v(admission.CreateUpdate("pods"))
	f(configured(pods, "", "Fail"))
	f(configured(pods, "", "Ignore"))
	f(configured(pods, "", "fail"), `failurePolicy: Unsupported value: "fail": supported values: "Fail", "Ignore"`)
	for _, s := range []admissionregistrationv1.SideEffectClass{"", "None", "NoneOnDryRun"} {
		pods.SideEffects = s
		f(pods)
	}
	for _, s := range []admissionregistrationv1.SideEffectClass{"Some", "Unknown", "none"} {
		pods.SideEffects = s
		f(pods, `sideEffects: Unsupported value: "`+string(s)+`": supported values: "None", "NoneOnDryRun"`)
	}
}
