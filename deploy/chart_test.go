package deploy_test

import (
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/internal/registration/certs"
)

func TestLint(t *testing.T) {
	t.Parallel()
	for _, s := range settings(t) {
		t.Run(s.name, func(t *testing.T) {
			run(t, tool(t, "helm"), append(helm(t, "lint", s.values, s.preset), "--strict")...)
		})
	}
}

// TestPlugins checks the errors without plugins, and with plugins that would deny every write to
// the cluster.
func TestPlugins(t *testing.T) {
	t.Parallel()
	f := func(values, want string) {
		t.Helper()
		_, stderr, err := try(t, "", tool(t, "helm"), helm(t, "template", values, "")...)
		if err == nil || !strings.Contains(stderr, want) {
			t.Errorf("%s: got %v %s, want %q", values, err, stderr, want)
		}
	}
	f("", "plugins: got none, want at least one")
	f("plugins: {Alw: {}}", "plugins: got Alw, did you mean AlwaysAdmit? If not, want one of AlwaysAdmit, ")
	f("plugins: {AlwaysPullImage: {}}", "plugins: got AlwaysPullImage, did you mean AlwaysPullImages? If not, want one of AlwaysAdmit, ")
	f("plugins: {podSecurty: {}}", "plugins: got podSecurty, did you mean PodSecurity? If not, want")
	f("plugins: {PodSecurity: {}}\nshadow: {plugins: {LimitRange: {}}}",
		"shadow.plugins: got LimitRange, did you mean LimitRanger? If not, want")
	f("plugins: {Ax: {}}", "plugins: got Ax, want one of AlwaysAdmit, ")
	f("plugins: {Nothing: {}}", "plugins: got Nothing, want one of AlwaysAdmit, ")
	f("plugins: {AlwaysDeny: {}}", "plugins.AlwaysDeny.rules: got none, want some")
	const kubelet = ": got 10250, want another port: with hostNetwork, the pods listen on the node, where the kubelet has 10250"
	f("plugins: {AlwaysPullImages: {}}\nhostNetwork: true\nsecurePort: 10250", "securePort"+kubelet)
	f("plugins: {AlwaysPullImages: {}}\nhostNetwork: true\nmetrics: {port: 10250}", "metrics.port"+kubelet)
}

// TestDeployment checks what must hold for all values.
func TestDeployment(t *testing.T) {
	t.Parallel()
	flags := run(t, binary, "serve", "--help")
	each(t, func(t *testing.T, s setting, r release) {
		d := one[appsv1.Deployment](t, r, "Deployment")
		pod := &d.Spec.Template.Spec
		container := &pod.Containers[0]
		for _, a := range container.Args[1:] {
			if name, _, _ := strings.Cut(a, "="); !regexp.MustCompile(`(?m)^ +` + name + `\b`).MatchString(flags) {
				t.Errorf("%s is no flag of fastadmit serve", name)
			}
		}
		checkSecurity(t, d, s.preset == "openshift.yaml")
		checkPorts(t, r, container)
		checkMounts(t, pod)
		checkSelectors(t, r, d)
		delay, err1 := seconds(container.Args, "shutdown-delay-duration")
		idle, err2 := seconds(container.Args, "shutdown-idle-duration")
		// The time in which fastadmit finishes requests in flight, and its plugins their background
		// work.
		if least := delay + idle + 35 + 2; err1 != nil || err2 != nil || *pod.TerminationGracePeriodSeconds <= least {
			t.Errorf("got terminationGracePeriodSeconds %d, want more than %d", *pod.TerminationGracePeriodSeconds, least)
		}
		inFlight, _ := argument(container.Args, "max-request-bytes-inflight")
		memory := container.Resources.Limits[corev1.ResourceMemory]
		if inFlight != "0" || memory.IsZero() {
			t.Errorf("got %s bytes in flight with a memory limit of %s, want 0, for a part of the limit", inFlight, &memory)
		}
		if _, limited := container.Resources.Limits[corev1.ResourceCPU]; limited {
			t.Error("got a limit of processor time, want none")
		}
	})
}

// seconds returns a duration among arguments.
func seconds(arguments []string, flag string) (int64, error) {
	value, _ := argument(arguments, flag)
	d, err := time.ParseDuration(value)
	return int64(d.Seconds()), err
}

// checkSecurity checks the Pod Security Standard restricted, and a user unless the cluster chooses
// it.
func checkSecurity(t *testing.T, d *appsv1.Deployment, clusterChoosesUser bool) {
	pod := &d.Spec.Template.Spec
	for _, got := range pod.Containers {
		want := &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}
		if !reflect.DeepEqual(got.SecurityContext, want) {
			t.Errorf("got securityContext %v, want %v", got.SecurityContext, want)
		}
	}
	want := &corev1.PodSecurityContext{
		RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	if !clusterChoosesUser {
		want.RunAsUser, want.RunAsGroup = new(int64(65532)), new(int64(65532))
	}
	if !reflect.DeepEqual(pod.SecurityContext, want) {
		t.Errorf("got securityContext %v of the pod, want %v", pod.SecurityContext, want)
	}
	_, managed := argument(pod.Containers[0].Args, "cert-secret-name")
	if token := *pod.AutomountServiceAccountToken; token && !managed && d.Spec.Template.Spec.ServiceAccountName == "default" {
		t.Error("got a token of the default account, which no role is for")
	}
}

// checkPorts follows a call from the webhook configuration to the flag.
func checkPorts(t *testing.T, r release, container *corev1.Container) {
	ports := make(map[string]int32)
	for _, p := range container.Ports {
		ports[p.Name] = p.ContainerPort
	}
	if port, _ := argument(container.Args, "secure-port"); port != strconv.Itoa(int(ports["webhook"])) {
		t.Errorf("got --secure-port=%s and container port %d", port, ports["webhook"])
	}
	if address, _ := argument(container.Args, "metrics-bind-address"); address != ":"+strconv.Itoa(int(ports["metrics"])) {
		t.Errorf("got --metrics-bind-address=%s and container port %d", address, ports["metrics"])
	}
	for _, probe := range []*corev1.Probe{container.ReadinessProbe, container.LivenessProbe} {
		if probe == nil || probe.HTTPGet.Port.StrVal != "metrics" {
			t.Errorf("got probe %v, want one of port metrics", probe)
		}
	}
	services := make(map[string]int32)
	for _, s := range only[corev1.Service](t, r, "Service") {
		if p := s.Spec.Ports[0]; len(s.Spec.Ports) != 1 || ports[p.TargetPort.StrVal] == 0 {
			t.Errorf("Service %s: got ports %v, want one that the container has", s.Name, s.Spec.Ports)
		}
		if s.Spec.Ports[0].TargetPort.StrVal == "webhook" {
			services[s.Namespace+"/"+s.Name] = s.Spec.Ports[0].Port
		}
	}
	for name, c := range webhooks(t, r) {
		if s := c.ClientConfig.Service; services[s.Namespace+"/"+s.Name] != *s.Port || *s.Port == 0 {
			t.Errorf("%s: got service %v, want one of %v", name, s, services)
		}
	}
}

// webhooks returns the webhooks of a release by name, without the fields of mutating webhooks
// alone.
func webhooks(t *testing.T, r release) map[string]admissionregistrationv1.ValidatingWebhook {
	t.Helper()
	all := make(map[string]admissionregistrationv1.ValidatingWebhook)
	for _, c := range only[admissionregistrationv1.ValidatingWebhookConfiguration](t, r, "ValidatingWebhookConfiguration") {
		for _, w := range c.Webhooks {
			all[w.Name] = w
		}
	}
	for _, c := range only[admissionregistrationv1.MutatingWebhookConfiguration](t, r, "MutatingWebhookConfiguration") {
		for _, w := range c.Webhooks {
			all[w.Name] = admissionregistrationv1.ValidatingWebhook{
				Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
				NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects,
				TimeoutSeconds: w.TimeoutSeconds, AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
			}
		}
	}
	return all
}

// checkMounts checks that every file in the arguments is mounted.
func checkMounts(t *testing.T, pod *corev1.PodSpec) {
	container := &pod.Containers[0]
	var mounted []string
	for _, m := range container.VolumeMounts {
		at := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if at < 0 || !m.ReadOnly && m.Name != "recordings" {
			t.Errorf("got mount %v, want a read-only one of a volume", m)
		} else if dir := pod.Volumes[at].EmptyDir; !m.ReadOnly && (dir == nil || dir.SizeLimit == nil) {
			t.Errorf("got recordings in %v, want an emptyDir with a sizeLimit", pod.Volumes[at])
		}
		mounted = append(mounted, m.MountPath+"/")
	}
	if len(mounted) != len(pod.Volumes) {
		t.Errorf("got mounts %q of %d volumes", mounted, len(pod.Volumes))
	}
	for _, a := range container.Args {
		_, path, _ := strings.Cut(a, "=")
		if strings.HasPrefix(path, "/") && !slices.Contains(mounted, filepath.Dir(path)+"/") && !slices.Contains(mounted, path+"/") {
			t.Errorf("got %s, and mounted are %q", a, mounted)
		}
	}
}

// checkSelectors checks that every selector selects the pods.
func checkSelectors(t *testing.T, r release, d *appsv1.Deployment) {
	pod := labels.Set(d.Spec.Template.Labels)
	selects := func(what string, selector map[string]string) {
		t.Helper()
		if len(selector) == 0 || !labels.SelectorFromSet(selector).Matches(pod) {
			t.Errorf("%s: got selector %v for pods with %v", what, selector, pod)
		}
	}
	selects("Deployment", d.Spec.Selector.MatchLabels)
	for _, c := range d.Spec.Template.Spec.TopologySpreadConstraints {
		selects("topologySpreadConstraints", c.LabelSelector.MatchLabels)
	}
	for _, s := range only[corev1.Service](t, r, "Service") {
		selects("Service "+s.Name, s.Spec.Selector)
	}
	for _, b := range only[policyv1.PodDisruptionBudget](t, r, "PodDisruptionBudget") {
		selects("PodDisruptionBudget", b.Spec.Selector.MatchLabels)
		if b.Spec.MinAvailable != nil {
			t.Error("got minAvailable, which blocks a drain of a single pod")
		}
	}
	for _, p := range only[networkingv1.NetworkPolicy](t, r, "NetworkPolicy") {
		if strings.HasSuffix(p.Name, "-registered") {
			continue // TestRegistrationCheck looks at it
		}
		selects("NetworkPolicy", p.Spec.PodSelector.MatchLabels)
		if len(p.Spec.PolicyTypes) != 2 || len(p.Spec.Ingress[0].From) == 0 {
			t.Errorf("got NetworkPolicy %v, want both directions, and to say who may call", p.Spec)
		}
	}
	for _, object := range r {
		got := object.GetLabels()
		if got["app.kubernetes.io/name"] != "fastadmit" || got["app.kubernetes.io/instance"] != "fastadmit" {
			t.Errorf("%s %s: got labels %v", object.GetKind(), object.GetName(), got)
		}
		namespaced := !strings.HasPrefix(object.GetKind(), "ClusterRole") && !strings.HasSuffix(object.GetKind(), "WebhookConfiguration") &&
			!strings.HasPrefix(object.GetKind(), "ValidatingAdmissionPolicy")
		if namespaced != (object.GetNamespace() == "fastadmit") {
			t.Errorf("%s %s: got namespace %q", object.GetKind(), object.GetName(), object.GetNamespace())
		}
	}
}

// TestRBAC compares the chart's rules with those that fastadmit declares.
func TestRBAC(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s setting, r release) {
		d := one[appsv1.Deployment](t, r, "Deployment")
		options := certs.Options{Hosts: []string{"fastadmit.fastadmit.svc"}}
		var wantRole, wantCluster []rbacv1.PolicyRule
		var managed bool
		arguments := d.Spec.Template.Spec.Containers[0].Args
		if options.SecretName, managed = argument(arguments, "cert-secret-name"); managed {
			options.SecretNamespace, _ = argument(arguments, "cert-secret-namespace")
			options.Owner, _ = argument(arguments, "webhook-owner")
			options.Deployment, _ = argument(arguments, "event-deployment")
			if options.Deployment != d.Name {
				t.Errorf("got --event-deployment=%s, want %s", options.Deployment, d.Name)
			}
			if named, ok := argument(arguments, "webhook-configurations"); ok {
				options.MutatingWebhookConfigurations, options.ValidatingWebhookConfigurations = byKind(named)
			} else {
				options.Configurations = registered(t, r)
			}
			wantRole, wantCluster = options.Rules()
		}
		var wanted []cluster.Need
		if strings.Contains(s.values, "namespaceSelector: {matchLabels") {
			wanted = append(wanted, cluster.Namespaces.Watched())
		}
		if strings.Contains(s.values, "authorizer.") {
			wanted = append(wanted, cluster.SubjectAccessReviews.Called("create"))
		}
		for _, name := range enabled(t, r) {
			wanted = append(wanted, needs(name)...)
		}
		for _, name := range configured(t, r).Shadow.EnableAdmissionPlugins {
			for _, need := range needs(name) {
				wanted = append(wanted, need.Aside())
			}
		}
		wantCluster = append(wantCluster, cluster.Rules(wanted...)...)
		var gotRole, gotCluster []rbacv1.PolicyRule
		for _, role := range only[rbacv1.Role](t, r, "Role") {
			gotRole = append(gotRole, role.Rules...)
		}
		for _, role := range only[rbacv1.ClusterRole](t, r, "ClusterRole") {
			gotCluster = append(gotCluster, role.Rules...)
		}
		for what, rules := range map[string][2][]rbacv1.PolicyRule{"Role": {gotRole, wantRole}, "ClusterRole": {gotCluster, wantCluster}} {
			if got, want := permissions(rules[0]), permissions(rules[1]); !maps.Equal(got, want) {
				t.Errorf("%s: got %v, want %v", what, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
			}
		}
		if token := *d.Spec.Template.Spec.AutomountServiceAccountToken; token != (len(gotRole)+len(gotCluster) > 0) {
			t.Errorf("got automountServiceAccountToken %v with %d rules", token, len(gotRole)+len(gotCluster))
		}
		account := rbacv1.Subject{Kind: "ServiceAccount", Name: d.Spec.Template.Spec.ServiceAccountName, Namespace: "fastadmit"}
		var bound []rbacv1.Subject
		for _, b := range only[rbacv1.RoleBinding](t, r, "RoleBinding") {
			bound = append(bound, b.Subjects...)
		}
		for _, b := range only[rbacv1.ClusterRoleBinding](t, r, "ClusterRoleBinding") {
			bound = append(bound, b.Subjects...)
		}
		if slices.ContainsFunc(bound, func(s rbacv1.Subject) bool { return s != account }) {
			t.Errorf("got subjects %v, want %v", bound, account)
		}
	})
}

// TestPluginRBAC compares the chart's rules for each plugin with those that the plugin declares.
func TestPluginRBAC(t *testing.T) {
	t.Parallel()
	for name, h := range table(t) {
		var got []rbacv1.PolicyRule
		for _, role := range only[rbacv1.ClusterRole](t, renderPlugin(t, name, h), "ClusterRole") {
			if !strings.HasSuffix(role.Name, "-audit") {
				got = append(got, role.Rules...)
			}
		}
		if got, want := permissions(got), permissions(cluster.Rules(needs(name)...)); !maps.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", name, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
	}
}

// wantsOnce reports permissions that two rules grant.
func wantsOnce(t *testing.T, rules []rbacv1.PolicyRule) {
	t.Helper()
	seen := make(map[string]bool)
	for i := range rules {
		for permission := range permissions(rules[i : i+1]) {
			if seen[permission] {
				t.Errorf("two rules allow to %s", permission)
			}
			seen[permission] = true
		}
	}
}

// TestCustomResources compares the chart's rules with those of the plugins that follow custom
// resources, and checks their CRDs and configurations. fastadmit must be called only for what these
// select.
func TestCustomResources(t *testing.T) {
	t.Parallel()
	f := func(values, group string, follows ...string) {
		t.Helper()
		r := render(t, somePlugins+values, "")
		var got []rbacv1.PolicyRule
		for _, role := range only[rbacv1.ClusterRole](t, r, "ClusterRole") {
			wantsOnce(t, role.Rules)
			for _, rule := range role.Rules {
				if slices.Equal(rule.APIGroups, []string{group}) || slices.Contains(rule.Resources, "services") {
					got = append(got, rule)
				}
			}
		}
		var wanted []rbacv1.PolicyRule
		var table struct {
			Plugins []struct {
				Name          string
				Configuration map[string]any
			}
		}
		config := one[corev1.ConfigMap](t, r, "ConfigMap").Data["admission.yaml"]
		if err := yaml.Unmarshal([]byte(config), &table); err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, p := range table.Plugins {
			if !slices.Contains(follows, p.Name) {
				continue
			}
			found++
			own, err := yaml.Marshal(p.Configuration)
			if err != nil {
				t.Fatal(err)
			}
			for _, rule := range cluster.Rules(needsWith(p.Name, own)...) {
				if slices.Equal(rule.APIGroups, []string{group}) || slices.Contains(rule.Resources, "services") {
					wanted = append(wanted, rule)
				}
			}
		}
		if got, want := permissions(got), permissions(wanted); found != len(follows) || len(want) == 0 || !maps.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", group, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
		definitions := 0
		for _, o := range r {
			if o.GetKind() == "CustomResourceDefinition" && strings.HasSuffix(o.GetName(), "."+group) {
				definitions++
			}
		}
		if definitions != len(follows) && group == cluster.WebhookGroup || definitions == 0 {
			t.Errorf("%s: got %d definitions", group, definitions)
		}
		run(t, binary, append([]string{"config"}, files(t, r)...)...)
	}
	f("policies: {customResources: true}", cluster.PolicyGroup, "MutatingAdmissionPolicy", "ValidatingAdmissionPolicy")
	f("webhookConfigurations: {customResources: true}", cluster.WebhookGroup, "MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")
}

// TestEngines compares the chart's rules with those of the plugins that read policies of other engines,
// and has fastadmit check their configurations.
func TestEngines(t *testing.T) {
	t.Parallel()
	r := render(t, somePlugins+"policies: {read: [kyverno, gatekeeper], exceptionsNamespace: exceptions}", "")
	isOfEngines := func(rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.Resources, "events") || slices.ContainsFunc(rule.APIGroups, func(group string) bool {
			return strings.HasSuffix(group, "kyverno.io") || strings.HasSuffix(group, ".gatekeeper.sh")
		})
	}
	var got, wanted []rbacv1.PolicyRule
	for _, role := range only[rbacv1.ClusterRole](t, r, "ClusterRole") {
		wantsOnce(t, role.Rules)
		for _, rule := range role.Rules {
			if isOfEngines(rule) {
				got = append(got, rule)
			}
		}
	}
	for _, name := range []string{"MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"} {
		config := "apiVersion: fastadmit.io/v1alpha1\nexceptionsNamespace: exceptions\nkind: " + name +
			"Configuration\nread:\n- kyverno\n- gatekeeper\n"
		for _, rule := range cluster.Rules(needsWith(name, []byte(config))...) {
			if isOfEngines(rule) {
				wanted = append(wanted, rule)
			}
		}
		var indented strings.Builder
		for line := range strings.Lines(config) {
			indented.WriteString("      " + line)
		}
		table := one[corev1.ConfigMap](t, r, "ConfigMap").Data["admission.yaml"]
		if !strings.Contains(table, indented.String()) {
			t.Errorf("got %s, want the configuration %s", table, config)
		}
	}
	if got, want := permissions(got), permissions(wanted); len(want) == 0 || !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
	run(t, binary, append([]string{"config"}, files(t, r)...)...)
}

// enabled returns the plugins of a release.
func enabled(t *testing.T, r release) []string {
	t.Helper()
	var c struct{ EnableAdmissionPlugins []string }
	if err := yaml.Unmarshal([]byte(run(t, binary, append([]string{"config"}, files(t, r)...)...)), &c); err != nil {
		t.Fatal(err)
	}
	return c.EnableAdmissionPlugins
}

// byKind parses --webhook-configurations.
func byKind(named string) (mutating, validating []string) {
	for configuration := range strings.SplitSeq(named, ",") {
		if name, ok := strings.CutPrefix(configuration, "mutating/"); ok {
			mutating = append(mutating, name)
		} else {
			validating = append(validating, strings.TrimPrefix(configuration, "validating/"))
		}
	}
	return mutating, validating
}

// registered returns the webhook configurations that fastadmit makes of the files in the ConfigMap.
func registered(t *testing.T, r release) (all []runtime.Object) {
	t.Helper()
	printed := manifests(t, r)
	for _, c := range only[admissionregistrationv1.MutatingWebhookConfiguration](t, printed, "MutatingWebhookConfiguration") {
		all = append(all, c)
	}
	for _, c := range only[admissionregistrationv1.ValidatingWebhookConfiguration](t, printed, "ValidatingWebhookConfiguration") {
		all = append(all, c)
	}
	return all
}

// permissions splits rules: one for each verb on one resource.
func permissions(rules []rbacv1.PolicyRule) map[string]bool {
	all := make(map[string]bool)
	for _, r := range rules {
		names := r.ResourceNames
		if names == nil {
			names = []string{"any"}
		}
		for _, url := range r.NonResourceURLs {
			for _, verb := range r.Verbs {
				all[verb+" "+url] = true
			}
		}
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, name := range names {
					for _, verb := range r.Verbs {
						all[strings.Join([]string{verb, resource, group, name}, " ")] = true
					}
				}
			}
		}
	}
	return all
}

// TestConfigurationFiles lets the built fastadmit read the files of the ConfigMap. If it refused
// them, pods would not start.
func TestConfigurationFiles(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, _ setting, r release) {
		for _, name := range []string{"AlwaysPullImages", "failurePolicy"} {
			if printed := run(t, binary, append([]string{"config"}, files(t, r)...)...); !strings.Contains(printed, name) {
				t.Errorf("got no %s in\n%s", name, printed)
			}
		}
	})
}

// files writes the files of the ConfigMap and returns the flags that name them.
func files(t *testing.T, r release) []string {
	t.Helper()
	for _, c := range only[corev1.ConfigMap](t, r, "ConfigMap") {
		if c.Data["configuration.yaml"] == "" {
			continue
		}
		return []string{
			"--config=" + writeFile(t, "configuration.yaml", c.Data["configuration.yaml"]),
			"--admission-control-config-file=" + writeFile(t, "admission.yaml", c.Data["admission.yaml"]),
		}
	}
	t.Fatal("got no ConfigMap with configuration.yaml")
	return nil
}

// TestNames checks the names of a release with another name, and that long ones are cut to
// Kubernetes' maximum.
func TestNames(t *testing.T) {
	t.Parallel()
	f := func(release, want string) {
		t.Helper()
		text := run(t, tool(t, "helm"), "template", release, "chart", "--namespace", "n", "--set",
			"plugins.AlwaysPullImages.failurePolicy=Fail")
		for _, object := range parse(t, text) {
			if name := object.GetName(); !strings.HasPrefix(name, want) || object.GetKind() == "Service" && len(name) > 63 {
				t.Errorf("%s: got %s %q, want %q or more, and 63 characters at most of a Service", release, object.GetKind(), name, want)
			}
		}
	}
	f("fastadmit", "fastadmit")
	f("team-a", "team-a-fastadmit")
	f(strings.Repeat("a", 53), strings.Repeat("a", 51))
}
