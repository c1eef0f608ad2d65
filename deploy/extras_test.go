package deploy_test

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const extras = somePlugins + `
commonLabels: {team: platform, cost-center: "7"}
podLabels: {team: admission}
podAnnotations: {example.com/pod: "1"}
deploymentAnnotations: {example.com/deployment: "2"}
serviceAccount: {annotations: {example.com/account: "3"}}
service: {annotations: {example.com/service: "4"}}
audit: {enabled: true, flowSchema: true}
networkPolicy: {apiServerCIDRs: [10.0.0.0/8]}
autoscaling: {enabled: true}
metrics: {serviceMonitor: {enabled: true, labels: {team: monitoring}}, prometheusRule: {enabled: true}, dashboard: {enabled: true}}
extraArgs: [--max-review-memory-bytes=1000000]
extraEnv: [{name: HTTPS_PROXY, value: "http://proxy:3128"}, {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
extraVolumes: [{name: more, configMap: {name: more}}]
extraVolumeMounts: [{name: more, mountPath: /more, readOnly: true}]
`

// TestCommonLabels checks that commonLabels are on every object and pod, and that labels of one
// kind override them.
func TestCommonLabels(t *testing.T) {
	t.Parallel()
	kinds := make(map[string]bool)
	f := func(kind string, labels map[string]string, team string) {
		t.Helper()
		if labels["team"] != team || labels["cost-center"] != "7" {
			t.Errorf("%s: got labels %v, want team %s and cost-center 7", kind, labels, team)
		}
	}
	for _, preset := range []string{"", "cert-manager.yaml"} {
		for _, object := range render(t, extras, preset) {
			kinds[object.GetKind()] = true
			team := "platform"
			if object.GetKind() == "ServiceMonitor" {
				team = "monitoring"
			}
			f(object.GetKind(), object.GetLabels(), team)
			for _, path := range [][]string{{"spec", "template"}, {"spec", "jobTemplate", "spec", "template"}} {
				if template, ok, _ := unstructured.NestedStringMap(object.Object, append(path, "metadata", "labels")...); ok {
					f("pod of "+object.GetKind(), template, "admission")
				}
			}
		}
	}
	for _, kind := range []string{"Deployment", "CronJob", "Job", "ServiceAccount", "Service", "ConfigMap", "ClusterRole", "Role",
		"NetworkPolicy",
		"HorizontalPodAutoscaler", "ServiceMonitor", "PrometheusRule", "Certificate", "MutatingWebhookConfiguration", "FlowSchema"} {
		if !kinds[kind] {
			t.Errorf("got no %s", kind)
		}
	}
	var configuration struct {
		Registration struct{ Labels map[string]string }
	}
	for _, c := range only[corev1.ConfigMap](t, render(t, extras, ""), "ConfigMap") {
		if text, ok := c.Data["configuration.yaml"]; ok {
			if err := yaml.Unmarshal([]byte(text), &configuration); err != nil {
				t.Fatal(err)
			}
		}
	}
	f("registration", configuration.Registration.Labels, "platform")
}

// TestSelectorsStay checks that more labels change no selector, because Kubernetes would refuse
// that in an upgrade.
func TestSelectorsStay(t *testing.T) {
	t.Parallel()
	want := one[appsv1.Deployment](t, render(t, somePlugins, ""), "Deployment").Spec.Selector.String()
	if got := one[appsv1.Deployment](t, render(t, extras, ""), "Deployment").Spec.Selector.String(); got != want {
		t.Errorf("got selector %s, want %s", got, want)
	}
}

func TestExtras(t *testing.T) {
	t.Parallel()
	r := render(t, extras, "")
	d := one[appsv1.Deployment](t, r, "Deployment")
	pod := d.Spec.Template
	container := pod.Spec.Containers[0]
	if d.Annotations["example.com/deployment"] != "2" || pod.Annotations["example.com/pod"] != "1" {
		t.Errorf("got annotations %v and of the pod %v", d.Annotations, pod.Annotations)
	}
	if last := container.Args[len(container.Args)-1]; last != "--max-review-memory-bytes=1000000" {
		t.Errorf("got the last flag %s, want that of extraArgs, which overrides", last)
	}
	if len(container.Env) != 2 || container.Env[0].Name != "HTTPS_PROXY" ||
		container.Env[1].ValueFrom.FieldRef.FieldPath != "spec.nodeName" {
		t.Errorf("got env %v", container.Env)
	}
	if !slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.Name == "more" && m.MountPath == "/more" &&
			m.ReadOnly
	}) {
		t.Errorf("got volumeMounts %v", container.VolumeMounts)
	}
	if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "more" && v.ConfigMap.Name == "more" }) {
		t.Errorf("got volumes %v", pod.Spec.Volumes)
	}
	for _, s := range only[corev1.Service](t, r, "Service") {
		if s.Spec.ClusterIP != corev1.ClusterIPNone && s.Annotations["example.com/service"] != "4" {
			t.Errorf("got annotations %v of Service %s", s.Annotations, s.Name)
		}
	}
	accounts := only[corev1.ServiceAccount](t, r, "ServiceAccount")
	if !slices.ContainsFunc(accounts, func(a *corev1.ServiceAccount) bool { return a.Annotations["example.com/account"] == "3" }) {
		t.Errorf("got ServiceAccounts %v", accounts)
	}
}

// TestSecurityContexts checks that the values are in all pods of the release.
func TestSecurityContexts(t *testing.T) {
	t.Parallel()
	const values = extras + "podSecurityContext: {fsGroup: 7}\nsecurityContext: {privileged: false}\n"
	r := render(t, values, "openshift.yaml")
	f := func(name string, pod *corev1.PodSpec) {
		t.Helper()
		c := pod.SecurityContext
		if c.RunAsUser != nil || c.RunAsGroup != nil || !*c.RunAsNonRoot || *c.FSGroup != 7 {
			t.Errorf("%s: got securityContext %v, want no user", name, c)
		}
		if p := pod.Containers[0].SecurityContext; p.Privileged == nil || *p.Privileged || !*p.ReadOnlyRootFilesystem {
			t.Errorf("%s: got securityContext %v of the container", name, p)
		}
	}
	f("Deployment", &one[appsv1.Deployment](t, r, "Deployment").Spec.Template.Spec)
	f("CronJob", &one[batchv1.CronJob](t, r, "CronJob").Spec.JobTemplate.Spec.Template.Spec)
	for _, job := range only[batchv1.Job](t, r, "Job") {
		f("Job", &job.Spec.Template.Spec)
	}
}

// TestChartAnnotations checks the annotations in Chart.yaml for Artifact Hub: texts, and YAML
// documents where it requires lists. The kinds are those that the chart installs.
func TestChartAnnotations(t *testing.T) {
	t.Parallel()
	var about struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := yaml.Unmarshal([]byte(readFile(t, "chart/Chart.yaml")), &about); err != nil {
		t.Fatal(err)
	}
	var kinds []struct{ Kind, Version, Name, DisplayName, Description string }
	if err := yaml.Unmarshal([]byte(about.Annotations["artifacthub.io/crds"]), &kinds); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]bool)
	for _, k := range kinds {
		got[k.Name] = true
		if k.Kind == "" || k.Version == "" || k.DisplayName == "" || k.Description == "" {
			t.Errorf("got crds entry %+v, want all fields", k)
		}
	}
	all := "crds: {podPreset: true, podSecurityPolicy: true}\npolicies: {customResources: true}\nwebhookConfigurations: " +
		"{customResources: true}\n"
	for _, object := range render(t, somePlugins+all, "") {
		if object.GetKind() == "CustomResourceDefinition" && !got[object.GetName()] {
			t.Errorf("artifacthub.io/crds lacks %s", object.GetName())
		}
		if object.GetKind() == "CustomResourceDefinition" {
			delete(got, object.GetName())
		}
	}
	if len(got) > 0 {
		t.Errorf("artifacthub.io/crds has %v, which the chart does not install", got)
	}
	var links []struct{ Name, URL string }
	if err := yaml.Unmarshal([]byte(about.Annotations["artifacthub.io/links"]), &links); err != nil || len(links) == 0 {
		t.Errorf("artifacthub.io/links: got %v, %v", links, err)
	}
	if about.Annotations["artifacthub.io/license"] != "Apache-2.0" || about.Annotations["artifacthub.io/category"] != "security" {
		t.Errorf("got annotations %v", about.Annotations)
	}
}
