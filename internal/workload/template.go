package workload

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/codec"
)

// A BuiltIn is a kind of Kubernetes that has a template of Pods.
type BuiltIn struct {
	Kind     schema.GroupKind
	Version  string
	Resource string
	Template string // the path of the template
}

// BuiltIns are the kinds of Kubernetes that have a template of Pods, sorted by group and resource. Nobody
// creates the Pods of a PodTemplate.
var BuiltIns = []BuiltIn{
	{schema.GroupKind{Kind: "PodTemplate"}, "v1", "podtemplates", "template"},
	{schema.GroupKind{Kind: "ReplicationController"}, "v1", "replicationcontrollers", "spec.template"},
	{schema.GroupKind{Group: "apps", Kind: "DaemonSet"}, "v1", "daemonsets", "spec.template"},
	{schema.GroupKind{Group: "apps", Kind: "Deployment"}, "v1", "deployments", "spec.template"},
	{schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}, "v1", "replicasets", "spec.template"},
	{schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, "v1", "statefulsets", "spec.template"},
	{schema.GroupKind{Group: "batch", Kind: "CronJob"}, "v1", "cronjobs", "spec.jobTemplate.spec.template"},
	{schema.GroupKind{Group: "batch", Kind: "Job"}, "v1", "jobs", "spec.template"},
}

// Check returns an error if a resource or a path cannot be one.
func (p Paths) Check() error {
	for _, resource := range slices.Sorted(maps.Keys(p)) {
		if resource != strings.ToLower(resource) {
			return fmt.Errorf("got %s, want the plural of a resource with its group, which has no capital letters, as in rollouts.argoproj.io",
				resource)
		}
		if path := p[resource]; resource == "" || len(path) < 2 || path[0] != '.' {
			return fmt.Errorf("got %s=%s, want a resource with its group, and a path, as in rollouts.argoproj.io and .spec.template",
				resource, path)
		}
	}
	return nil
}

// Template returns the path of the template of Pods in objects of a resource, such as "spec.template". It
// returns "" if there is none.
func (p Paths) Template(resource schema.GroupResource) string {
	if path := p[resource.String()]; path != "" {
		return strings.Trim(path, ".")
	}
	if b := builtIn(resource); b != nil {
		return b.Template
	}
	return ""
}

// unnamed are custom kinds whose objects have Pods in lists, or several templates, which no path can name.
var unnamed = map[string][]string{
	"argoproj.io":              {"Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate", "CronWorkflow"},
	"tekton.dev":               {"Task", "TaskRun", "Pipeline", "PipelineRun"},
	"batch.volcano.sh":         {"Job"},
	"jobset.x-k8s.io":          {"JobSet"},
	"leaderworkerset.x-k8s.io": {"LeaderWorkerSet"},
	"ray.io":                   {"RayCluster", "RayJob", "RayService"},
	"kubeflow.org":             {"JAXJob", "MPIJob", "PaddleJob", "PyTorchJob", "TFJob", "XGBoostJob"},
}

// MakesPods reports whether an object of a custom kind makes Pods with images in it, and no path can name their template.
func MakesPods(kind schema.GroupKind, text []byte) bool {
	return slices.Contains(unnamed[kind.Group], kind.Kind) && bytes.Contains(text, []byte(`"image"`))
}

// templateDepthMax is how deep FindTemplate searches, and templatePathMax how long a path may be: each is made for all that is below it.
const templateDepthMax, templatePathMax = 8, 1000

// FindTemplate returns the path, for Paths, of what seems to be a template of Pods in an object of an unknown kind: a field whose spec
// has containers with images. It returns "" if there is none, or none that a path can name.
func FindTemplate(text []byte) string {
	if !bytes.Contains(text, []byte(`"containers"`)) {
		return ""
	}
	var object codec.Object
	object.Reset(text)
	return findTemplate(object.Root(), "", templateDepthMax)
}

func findTemplate(value codec.Value, path string, depth int) string {
	if depth == 0 || value.Kind() != codec.KindObject {
		return ""
	}
	for _, container := range value.Get("spec", "containers").Elements() {
		if path != "" && container.Get("image").Kind() == codec.KindString {
			return path
		}
		break
	}
	for name, inner := range value.Members() {
		if strings.Contains(name, ".") || len(path)+len(name) > templatePathMax {
			continue // with a dot, it would be two steps of a path
		}
		if found := findTemplate(inner, path+"."+name, depth-1); found != "" {
			return found
		}
	}
	return ""
}

// builtIn returns nil if there is none.
func builtIn(resource schema.GroupResource) *BuiltIn {
	for i := range BuiltIns {
		if b := &BuiltIns[i]; b.Resource == resource.Resource && b.Kind.Group == resource.Group {
			return b
		}
	}
	return nil
}

// IsControlled reports whether the controller of a built-in workload manages an object.
func IsControlled(object codec.Value) bool {
	for _, owner := range object.Get("metadata", "ownerReferences").Elements() {
		group, _, _ := strings.Cut(owner.Get("apiVersion").String(), "/")
		if group == "v1" {
			group = ""
		}
		if owner.Get("controller").Bool() && controllers[schema.GroupKind{Group: group, Kind: owner.Get("kind").String()}] != "" {
			return true
		}
	}
	return false
}

// Pod returns the Pod that is created for an object which has a template, as kube-apiserver passes it to
// plugins. The Controller is "" if it is unknown who creates it. text is the JSON of the object. kind is for
// errors.
func (p Paths) Pod(resource schema.GroupResource, kind string, text []byte) (Child, error) {
	var pod Child
	gvk := schema.GroupVersionKind{Group: resource.Group, Kind: kind}
	if b := builtIn(resource); b != nil {
		gvk.Kind = b.Kind.Kind
		if b.Resource == "podtemplates" {
			p = Paths{b.Resource: b.Template}
		}
	}
	name := resource.Resource
	for pod.Kind.Kind != "Pod" {
		children, err := p.Children(gvk, name, text)
		if err != nil {
			return pod, err
		}
		at := slices.IndexFunc(children, func(c Child) bool { return c.Resource != "persistentvolumeclaims" })
		if at < 0 {
			return pod, errors.New("nobody creates Pods for a " + gvk.Kind)
		}
		pod = children[at]
		gvk, name, text = pod.Kind, pod.Resource, pod.JSON
	}
	var object codec.Object
	object.Reset(pod.JSON)
	setDefaults(&object)
	if err := object.Err(); err != nil {
		return pod, err
	}
	pod.JSON = object.Root().AppendJSON(nil)
	return pod, nil
}

// User returns the user as whom a controller of kube-controller-manager sends requests, with
// --use-service-account-credentials, which kubeadm and cloud providers set.
func User(controller string) authenticationv1.UserInfo {
	return authenticationv1.UserInfo{
		Username: "system:serviceaccount:" + metav1.NamespaceSystem + ":" + controller,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + metav1.NamespaceSystem, "system:authenticated"},
	}
}

// podPath matches the paths of Pods in messages. Not in quotes, where names and values are, and not in
// expressions, such as object.spec.
var podPath = regexp.MustCompile(`(^|[\s(\[,;:])(spec[.:\[]|metadata\.(?:labels|annotations)\b)`)

// Locate replaces the paths of fields of a Pod in a text by those of its workload, whose template is at the
// path.
func Locate(text, template string) string {
	return podPath.ReplaceAllString(text, "${1}"+template+".${2}")
}
