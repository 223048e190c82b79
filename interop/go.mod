module mtrelay/interop

go 1.26.0

require mtrelay v0.0.0

replace mtrelay => ../
