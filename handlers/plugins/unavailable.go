package plugins

// Unavailable is an admission plugin that a release of Kubernetes had and fastadmit does
// not have.
type Unavailable struct {
	Name        string
	First, Last string // minor releases of Kubernetes that had it
	Reason      string // why it is not here, and what to do instead
}

// NotHere returns the admission plugins of all releases of Kubernetes that are not in
// the table, by name. Testdata/releases.yaml has all that there ever were.
func NotHere() []Unavailable {
	return []Unavailable{
		{"BanFlunder", "1.8", "1.36", "is an example: it denies objects of a kind that only k8s.io/sample-apiserver has"},
		{"GenericAdmissionWebhook", "1.7", "1.8", "was renamed: enable ValidatingAdmissionWebhook"},
		{"PVCProtection", "1.9", "1.9", "was renamed: enable StorageObjectInUseProtection"},
		{"SchedulingPolicy", "1.7", "1.8", "belonged to the API server of Federation, which no longer exists: it asked a policy engine in which clusters to run a ReplicaSet"},
	}
}
