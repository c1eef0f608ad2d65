package server

// descriptorsMax returns 0: Windows has no limit of handles worth counting.
func descriptorsMax() int64 { return 0 }
